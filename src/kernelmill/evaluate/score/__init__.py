"""Derive rewards, feedback and summaries from stored verdicts.

In: verdicts. Out: numbers and text. Nothing is run; all are pure functions of the record, except that
`rescore` reads and writes files.

    rewards    reward functions by name
    feedback   text for a repair turn, with `words` (phrases), `differs` (wrong values), `quote` (cleaning)
    summary    counts over many verdicts, as a table
    rescore    the command `kernelmill rescore`

From outside, import `rewards`, `feedback`, `summary` and `rescore`; the others belong to `feedback`.
"""
