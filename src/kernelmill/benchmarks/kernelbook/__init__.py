"""KernelBook judged again: `kernelmill verify-kernelbook`.

It finds which of its Triton kernels compute what their module does.

    command   the command
    verify    judges each row, then keeps or rejects it
    restate   replaces names that current torch no longer has
    tally     counts rows by outcome and licence

KernelBook rows come in; the kept rows, and the rejected ones with a reason, go out. Rows are not repaired.
"""
