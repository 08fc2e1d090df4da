"""The environment under a name that `verifiers` can look up: `kernelmill-env`. What it is made of is in `kernelmill.rl`.

`load_environment` is for the classic interface, which verifiers 0.3 has, `KernelTaskset` for `v1`, which 0.4 has alone: each is
imported when it is asked for.
"""

from __future__ import annotations

from typing import Any

# verifiers looks for exactly one taskset in here.
__all__ = ["KernelTaskset"]


def __getattr__(name: str) -> Any:
    if name == "KernelTaskset":
        from kernelmill.rl.taskset import KernelTaskset

        return KernelTaskset
    if name == "load_environment":
        from kernelmill.rl.verifiers import load_environment

        return load_environment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
