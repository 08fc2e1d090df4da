"""A Triton driver that reports one H100 and never touches a device."""

from __future__ import annotations

from typing import Any

import torch
import triton.runtime
import triton.testing
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from kernelmill.evaluate.fake_gpu import streams
from kernelmill.evaluate.fake_gpu.device import ARCH, CAPABILITY, TRITON_PROPERTIES

TARGET = GPUTarget("cuda", ARCH, 32)


def bench(
    fn: Any,
    *args: Any,
    quantiles: Any = None,
    return_mode: str = "mean",
    **kwargs: Any,
) -> Any:
    """Replace do_bench: one call, one millisecond."""
    fn()
    if quantiles is not None:
        return [1.0] * len(quantiles) if len(quantiles) > 1 else 1.0
    return [1.0] if return_mode == "all" else 1.0


class _Utils:
    @staticmethod
    def get_device_properties(device: int = 0) -> dict[str, int]:
        return dict(TRITON_PROPERTIES)


class Driver(DriverBase):  # type: ignore[misc]
    def __init__(self) -> None:
        self.utils = _Utils()

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return TARGET

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


_CLOCKS = {
    "clocks.max.sm": TRITON_PROPERTIES["sm_clock_rate"] // 1000,
    "clocks.max.memory": TRITON_PROPERTIES["mem_clock_rate"] // 1000,
}
_CLOCKS |= {name.replace("max", "current"): value for name, value in _CLOCKS.items()}


def nvsmi(attrs: list[str]) -> list[int]:
    """Replace triton.testing.nvsmi, which runs a program: clocks in MHz."""
    return [_CLOCKS[name] for name in attrs]


def install() -> None:
    triton.testing.nvsmi = nvsmi
    triton.runtime.driver.set_active(Driver())
