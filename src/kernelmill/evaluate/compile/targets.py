"""Compile targets: the GPUs that kernels are compiled for, with the limits of one block there.

An NVIDIA target is an entry of `TARGETS`. Another vendor's also needs a backend (`evaluate.gpu_backends`).
"""

from __future__ import annotations

from typing import NamedTuple

from kernelmill.settings.registry import Registry


class Target(NamedTuple):
    what: str
    """The GPUs that it stands for."""
    arch: int
    """The compute capability, as Triton writes it: 90 for 9.0."""
    shared: int
    """The shared memory, in bytes, that one block may opt in to."""
    threads: int = 1024
    registers: int = 64 << 10
    tensor_memory: int = 512
    """In columns."""
    backend: str = "cuda"
    """A key of `gpu_backends.BACKENDS`."""


TARGETS = Registry(
    "target",
    "kernelmill.targets",
    Target,
    {
        "sm_80": Target("A100", 80, 163 << 10),
        "sm_86": Target("A10, RTX 30", 86, 99 << 10),
        "sm_89": Target("L4, L40, RTX 40", 89, 99 << 10),
        "sm_90": Target("H100, H200", 90, 227 << 10),
        "sm_100": Target("B200", 100, 227 << 10),
        "sm_120": Target("RTX 50", 120, 99 << 10),
    },
)
DEFAULT = ("sm_90",)
"""The targets of a run that names none: the one that decides. Each further one costs as much again."""
