"""Cross-compile candidates' kernels for GPUs that this machine does not have.

In: a candidate's source and its recorded launches. Out: for each target, what each kernel uses or the
compiler's error.

 compiling   what the orchestrator calls: `cross_compile`, limits, programs, error texts. No torch, no Triton
 worker      the sandboxed process that compiles
 source      the candidate's module, and its kernels as sources for Triton's compiler

Only a confined process may import `worker` and `source`: they execute the candidate's module.
"""
