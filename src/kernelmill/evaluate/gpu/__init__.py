"""The GPU tiers: judging and timing on a device, whose turns and memory are shared out from outside.

`lane`, `plan`, `ratio` and `wall_clock` import no torch: the orchestrator uses them.
"""
