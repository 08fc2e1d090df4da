"""What can be said of a candidate by reading it: no code runs. In: source text. Out: flags and the kernels that can be launched."""
