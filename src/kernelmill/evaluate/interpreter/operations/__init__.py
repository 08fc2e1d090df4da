"""What a kernel computes: each operation of Triton's builder on arrays with an axis for the programs.

In: handles. Out: handles.

    floats     conversions between float formats
    numerics   arithmetic, comparisons, casts and tl.dot as on a GPU
    blocks     blocks rearranged: splat, broadcast, reshape, transpose, join, gather, histogram
    reduce     reductions, scans and sorts with any combine function
    libdevice  libdevice's functions by NumPy
"""
