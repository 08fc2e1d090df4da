"""GPU vendors: the device files, variables, programs and error texts of their GPUs. No torch.

What torch and Triton need to know of a vendor is in `evaluate.gpu_backends`. docs/extending.md says what another
vendor takes. Only NVIDIA's GPUs are supported and tested.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class GpuVendor:
    what: str
    device_files: Callable[[], dict[int, str]]
    """The device file of each GPU of this machine, by its number in the variable `visible`."""
    visible: str
    """The variable with the numbers of the GPUs that a process may use. A judge's process gets one number."""
    environment: Mapping[str, str]
    """Further variables of a judge's process."""
    reads: tuple[str, ...]
    """What the driver reads in a process that uses a GPU."""
    writes: tuple[str, ...]
    """What it opens for writing besides the device files."""
    assemblers: tuple[str, ...]
    """The programs that Triton runs to compile a kernel, in Triton's package."""
    torch_assemblers: tuple[str, ...]
    """Those that torch.compile runs, in torch's package."""
    out_of_memory: tuple[str, ...]
    """What errors say if the GPU has too little memory."""
    driver_check: str
    """The command that shows whether the driver works."""


def _nvidia_device_files() -> dict[int, str]:
    return {int(path[len("/dev/nvidia") :]): path for path in glob.glob("/dev/nvidia[0-9]*")}


NVIDIA = GpuVendor(
    what="NVIDIA",
    device_files=_nvidia_device_files,
    visible="CUDA_VISIBLE_DEVICES",
    environment={
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        # Hardware queues of a context. With the default of eight, creating one takes three times as long, and
        # contexts are created one after the other.
        "CUDA_DEVICE_MAX_CONNECTIONS": "2",
    },
    # Found by tracing the first call of CUDA.
    reads=(
        "/proc/devices",
        "/proc/driver/nvidia",
        "/proc/self",
        "/proc/sys/vm/mmap_min_addr",
        "/sys/bus/pci",
        "/sys/devices",
        "/usr/local/nvidia",
        "/usr/local/cuda",
        "/dev/nvidia-caps",
    ),
    writes=("/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/self/task"),
    assemblers=("backends/nvidia/bin/ptxas", "backends/nvidia/bin/ptxas-blackwell"),
    torch_assemblers=("bin/ptxas",),
    out_of_memory=(
        "out of memory",
        "cudaMalloc",
        "NVML_SUCCESS",  # from torch's allocator when memory is short
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_ALLOC_FAILED",
        "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ),
    driver_check="nvidia-smi",
)
VENDORS = (NVIDIA,)
"""If a machine has GPUs of several vendors, those of the first are used."""


def vendor_here() -> GpuVendor:
    """The vendor of this machine's GPUs; the first one if there are none. Call it outside the sandbox."""
    return next((vendor for vendor in VENDORS if vendor.device_files()), VENDORS[0])


def visible_gpus() -> list[int]:
    """Device numbers of the GPUs that this process may use."""
    vendor = vendor_here()
    there = sorted(vendor.device_files())
    allowed = os.environ.get(vendor.visible)
    if allowed is None:
        return there
    return [int(one) for one in allowed.split(",") if re.fullmatch(r"\s*\d+\s*", one) and int(one) in there]


def judge_environment(device: int) -> dict[str, str]:
    """The variables of a process that judges on this GPU."""
    vendor = vendor_here()
    return {vendor.visible: str(device), **vendor.environment}
