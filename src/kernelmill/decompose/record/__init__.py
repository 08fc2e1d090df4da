"""One run of a model, noted call by call. Executes a stranger's code: only in a confined process.

In: the model's source. Out: a `Record` of calls in their order, inside the modules that made them, with the values that constants hold.
"""
