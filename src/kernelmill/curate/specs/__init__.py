"""Task specifications: written by a model or from a trace, checked against the trace either way."""
