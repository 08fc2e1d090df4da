"""Other people's sets, graded: a model on KernelBench, and KernelBook's own kernels judged again."""
