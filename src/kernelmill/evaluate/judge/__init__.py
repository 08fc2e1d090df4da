"""Judge a candidate against a reference, each in its own process, over a channel of frames.

In: a reference, a candidate's code and a seed, as a request to `worker`. Out: a `session.Record` as plain values.

- Judge's side: `worker` (entry point), `session`, `trial`, `cases`, `torch_share`.
- Comparison: `tolerance`, `choices` (indices), `closeness` (what an error means), `differences` (where it is).
- Candidate's process: `candidate`, `guard`, `interpreted`. Its answers are evidence and never a verdict.
- Both sides: `channel` (frames, never pickle), `torch_work` (how much torch computed).
"""
