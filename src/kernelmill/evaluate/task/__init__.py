"""The task: the reference, its inputs, its float64 oracle, and smaller versions of it.

In: a reference's source and a seed. Out: a `reference.Reference`, its `values.Call` inputs, its answers.
Loading a reference executes it: do that only in a sandboxed process. Nothing here runs a candidate.

- Running: `reference`, `facts`, `answers`, `values` (inputs, outputs), `spare` (copies of a model), `float64`
  (oracle), `cuda_to_cpu`, `chunked` (large tensors).
- Inputs: `roles` infers each input's role, and `generators` makes other inputs by it.
- Sizes: `shrink` rewrites a source, `fit_size` picks a version that fits, `own_size` measures the original.
- `resize` rewrites a candidate's text for a shrunk task. `offline_models` stands in for the Hugging Face Hub.
"""
