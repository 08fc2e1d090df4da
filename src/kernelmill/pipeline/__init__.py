"""`kernelmill run`: run the stages that a config names, skipping those that are up to date.

In: a config with `[run]`. Out: the outputs of its stages and `run.json`. Uses stages only through their
settings and results.

    command      the command: steps, what changed, running them
    forecast     the dry run: calls and cost of all steps
    run_report   `run.json`, and the table printed at the end
"""
