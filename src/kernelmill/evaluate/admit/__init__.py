"""Which tasks can tell a candidate that computes them from one that does not: the battery of cheats, and `kernelmill admit`."""
