"""The one runner: many items, some at a time, resumable, with progress and a clean stop.

    run         `run_all`: a list in, the results in its order out; `work_through`: a stream of any length
    executors   what runs an item: `Tasks` (async functions), `Threads` (blocking calls to sandboxed processes)
    progress    the line on standard error that every run shows

In: items, an `Executor`, the results of earlier runs. Out: the results, each one as soon as it is there. How a
result is stored, and when a stored one is still valid, is up to the command. Standard library only.
"""

from kernelmill.runner.executors import Executor, Tasks, Threads
from kernelmill.runner.progress import ItemProgress
from kernelmill.runner.run import Job, run_all, work_through

__all__ = ["Executor", "ItemProgress", "Job", "Tasks", "Threads", "run_all", "work_through"]
