"""Partition a record into parts: kernels, fusions, layers, the model.

In: a `Record`. Out: a tree of `Part`s from `partition.partition`. Nothing is run or written here.

    partition     the partitioning
    part          `Part`
    op_patterns   calls that form one named operation, and kernels that form one fusion
    kinds         the kind and name of each operation; shared with `write`
"""
