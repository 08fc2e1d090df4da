"""The environment under a name that `verifiers` can look up: `kernelmill-env`. `kernelmill.rl` implements it.

`load_environment` is for the classic interface, which verifiers 0.3 has. `KernelTaskset` is for `v1`, the
only interface of 0.4. Each is imported on first access. Nothing else is public.
"""

from __future__ import annotations

from typing import Any

# verifiers expects exactly one taskset here.
__all__ = ["KernelTaskset"]


def __getattr__(name: str) -> Any:
    if name == "KernelTaskset":
        from kernelmill.rl.taskset import KernelTaskset

        return KernelTaskset
    if name == "load_environment":
        from kernelmill.rl.verifiers import load_environment

        return load_environment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
