"""KernelBook judged again: which of its Triton kernels compute what the module beside them does."""
