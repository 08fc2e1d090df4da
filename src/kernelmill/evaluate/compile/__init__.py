"""Candidates' kernels compiled for GPUs that are not here. In: recorded launches. Out: what each target takes, or the compiler's error."""
