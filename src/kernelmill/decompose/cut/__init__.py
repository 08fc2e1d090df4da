"""A record cut into parts: kernels, fusions, layers, the model. In: a `Record`. Out: a tree of parts. Nothing is run or written."""
