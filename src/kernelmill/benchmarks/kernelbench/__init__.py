"""A model over a benchmark's levels: `synthesize` asks and judges, this says what came of it in KernelBench's terms."""
