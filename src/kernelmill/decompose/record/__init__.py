"""Record one run of a model, call by call. This executes untrusted code: use it only in a sandboxed process.

In: the model's source. Out: a `Record` of calls in order, inside the modules that made them, with the values
of constants.

    types            the data types that all later stages read
    capture          run a model and record it: `capture`, `other_shapes`, `build`
    recorder         record the calls of one run
    aliasing         which value each tensor holds, with views and in-place writes
    model_tensors    the tensors of a model, and the arguments of `forward` by name
    keep_whole       which modules are recorded as one call, and how to create them again
    layers           constructor arguments of torch layers
    tensor_literals  expressions that recreate tensors
    variables        the author's names for results
    graph            the record as JSON
    fake             fake tensors, some with values; also used by `prove`
    caches           clear caches that outlive a run; also used by `prove`
    fast_paths       disable fast paths of torch; also used by `prove`
"""
