"""Triton kernels without a model: torch's Inductor generates them, on a machine that needs no GPU.

    teacher    the entry point from outside: sends problems to a sandboxed worker, imports no torch
    variants   the block sizes to choose from; imports no torch either
    worker     the worker process: one problem a request, runs the steps below
    capture    export a problem's module as a graph; sizes and integer attributes are symbols
    fake_gpu   make Inductor generate code for an NVIDIA GPU on a machine without one, with `indexing`
    generate   compile the graph to the source that Inductor would run
    rewrite    turn that source into plain kernels and launches, with `kernels` and `simplify`
    skeleton   put them into `ModelNew`, with the original's constructor and what it needs

Operations that Inductor would leave to a library, in a form for which it generates kernels:

    convolution, pooling    convolutions without a template; pooling as a reduction
    ordering, bags          sort, topk and median as ranks; `embedding_bag` as gathers

A problem's source comes in; the source of a `ModelNew`, or the reason why there is none, goes out. Because
sizes are symbols, the kernels are not shape-specialised to the problem's own sizes. `fake_gpu` patches torch
for the whole process, so nothing outside the worker may import it.
"""
