"""Judge a candidate against a reference, each in its own process, over a channel of frames.

In: a request to `worker` with both sources and a seed. Out: a `record.Record` as plain values.

- Judge's side: `worker` (entry point, for Triton), `judging`, `session`, `record`, `trial`, `torch_share`.
- Comparison: `comparing` (all outputs), `tolerance`, `choices` (indices), `closeness` (what an error means),
  `differences` (its place).
- Candidate's process: `candidate`, and `Interpreted` of `worker`. Its answers are evidence and never a verdict.
- Both sides: `channel` (frames, never pickle), `torch_work` (how much torch computed).
"""
