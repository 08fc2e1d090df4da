"""The fake GPU: an H100 as torch and Triton describe it, and torch.cuda's answers about it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kernelmill.evaluate.fake_gpu import streams

CAPABILITY = (9, 0)
ARCH = 90
MEMORY = 80 << 30
TRITON_PROPERTIES = {
    "max_shared_mem": 232_448,
    "max_num_regs": 65_536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5_120,
}
PROPERTIES = SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=CAPABILITY[0],
    minor=CAPABILITY[1],
    multi_processor_count=TRITON_PROPERTIES["multiprocessor_count"],
    total_memory=MEMORY,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    regs_per_multiprocessor=65_536,
    shared_memory_per_block=49_152,
    shared_memory_per_block_optin=TRITON_PROPERTIES["max_shared_mem"],
    shared_memory_per_multiprocessor=233_472,
    L2_cache_size=50 << 20,
    is_integrated=0,
    is_multi_gpu_board=0,
    gcnArchName="",
)


def always(value: Any) -> Any:
    """Return a new function each time.

    `torch._dynamo` maps torch's functions to rules and rejects one that it sees twice.
    """
    return lambda *args, **kwargs: value


def new_class(base: type) -> type:
    """Return a new class each time, for the same reason."""
    return type(base.__name__, (base,), {})


ANSWERS: dict[str, Any] = {
    "is_available": always(True),
    "is_initialized": always(True),
    "is_bf16_supported": always(True),
    "device_count": always(1),
    "current_device": always(0),
    "get_device_capability": always(CAPABILITY),
    "get_device_properties": always(PROPERTIES),
    "set_device": always(None),
    "_lazy_init": always(None),
    "synchronize": lambda device=None: streams.synchronize(),
    "device": new_class(streams.Context),
    "_DeviceGuard": new_class(streams.Context),
}
"""Replacements for attributes of torch.cuda, by name."""
