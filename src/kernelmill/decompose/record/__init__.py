"""Record one run of a model, call by call. This executes untrusted code: use it only in a sandboxed process.

In: the model's source. Out: a `Record` of calls in order, inside the modules that made them, with the values
of constants. Entry points: `capture.capture`, `capture.other_shapes`, `capture.build`, `graph.graph_of`, and
`values` for expressions that recreate tensors. `record` has the data types that all later stages read.
`prove` uses `fake`, `caches` and `shortcuts`. `recorder` and `variables` are internal.
"""
