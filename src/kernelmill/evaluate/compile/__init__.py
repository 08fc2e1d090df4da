"""Cross-compile candidates' kernels for GPUs that this machine does not have.

In: a candidate's source and its recorded launches. Out: for each target, what each kernel uses or the
compiler's error.

    targets        the registry of targets, with their limits
    compiling      the orchestrator's side: `cross_compile`, programs, error texts; no torch, no Triton
    known_reports  what is compiled already, for candidates with the same source
    worker         the sandboxed process that compiles
    source         the candidate's module, and its kernels as sources for Triton's compiler

What differs between vendors is in `evaluate.gpu_backends`. Run `worker` and
`source` only in a sandboxed process: they execute the candidate's module.
"""
