"""Probes: each calls the candidate, judges the answer, and says what a failure means.

In: a `judge.trial.Trial` with a built candidate. Out: checks, flags and grades in its record, or a `Stop`.

- `battery`: which probes run in which tier, and the probes of values, shapes, modes and configurations.
- `replay`: probes for state kept between calls (caches, stale weights, call counters).
- `on_gpu`: probes that need a real GPU.
"""
