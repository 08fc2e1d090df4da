"""A Triton driver that reports one H100 and never touches a device."""

from __future__ import annotations

from typing import Any

import torch
import triton.runtime
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from kernelmill.evaluate.interpreter import streams
from kernelmill.evaluate.interpreter.autotune import bench

CAPABILITY = (9, 0)
PROPERTIES = {
    "max_shared_mem": 232_448,
    "max_num_regs": 65_536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5_120,
}


class _Utils:
    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        return dict(PROPERTIES)


class Driver(DriverBase):  # type: ignore[misc]
    def __init__(self) -> None:
        self.utils = _Utils()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return int(streams.current().cuda_stream)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return CAPABILITY

    def get_active_torch_device(self) -> Any:
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.zeros(1)

    def clear_cache(self, cache: Any) -> None:
        pass

    def get_benchmarker(self) -> Any:
        return bench


def install() -> None:
    triton.runtime.driver.set_active(Driver())
