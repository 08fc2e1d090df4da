"""Other projects' problem sets, graded.

    kernelbench   a model over KernelBench (`kernelmill bench-model`)
    kernelbook    KernelBook's own kernels, judged again (`kernelmill verify-kernelbook`)

Rows of these sets come in; results in the set's own terms, or the rows that hold, go out. Judging is left to
`kernelmill.evaluate`, and asking a model to `kernelmill.generate.synthesize`.
"""
