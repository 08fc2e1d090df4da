"""Probes: each calls the candidate, judges the answer, and says what a failure means.

In: a `judge.trial.Trial` with a built candidate. Out: checks, flags and grades in its record, or a `Stop`.

- `battery`: which probes run in which tier; the first calls, launches left out or reversed, modes, configurations.
- `provenance`: the candidate's program, and what it has to do with what the candidate does.
- `values`, `shapes`: other inputs, layouts and sizes.
- `seen`: what every probe does with an answer.
- `replay`: probes for state kept between calls (caches, stale weights, call counters).
- `on_gpu`: probes that need a real GPU.
"""
