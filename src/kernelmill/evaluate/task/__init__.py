"""The task: the reference, its inputs, the float64 oracle, and smaller versions of it that keep what the inputs mean.

Executes the reference, so only in a confined process. Never sees a candidate.
"""
