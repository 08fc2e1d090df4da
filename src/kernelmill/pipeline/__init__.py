"""`kernelmill run`: the stages that a config names, one after the other, each only when it has to be.

In: a config with `[run]`. Out: the outputs of its stages and `run.json`. Knows stages by their settings and results, not how they work.
"""
