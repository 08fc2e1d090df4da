"""Triton kernels without a model: torch's own compiler writes them, for a GPU that need not be here.

    capture    a problem's module as a graph in which every size is a symbol: of inputs, of weights, of the module's integers
    pretend    makes Inductor generate code for an NVIDIA GPU on a machine without one
    generate   the graph to the text that Inductor would run
    rewrite    that text to plain kernels and launches
    skeleton   the original's constructor, and what it needs, as `ModelNew`
    worker     all of it in a confined process, one problem a request

Because sizes are symbols, the kernels hold for other shapes than the problem's own, as those that a person writes do.
"""
