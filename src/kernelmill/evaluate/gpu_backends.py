"""GPU backends: what differs between vendors in torch and Triton, on a GPU and when kernels are compiled.

`torch.cuda` is not in here: torch has the same names for the GPUs of other vendors. What needs no torch is in
`sandbox.gpu_vendors`, and docs/extending.md says what another vendor takes. Only CUDA is supported and tested.

Imported in sandboxed processes only, before they run untrusted code.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from tempfile import NamedTemporaryFile
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from triton import knobs
from triton._C.libtriton import ir, nvidia
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import compiler as nvidia_compiler
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.errors import OutOfResources


class GpuBackend(ABC):
    """One vendor's GPUs, as torch and Triton know them. Stateless."""

    __slots__ = ()
    triton_name: str
    """Triton's name for it, and the key in `BACKENDS`."""
    torch_version: str
    """The attribute of `torch.version` that is set if torch was built for it."""
    warp_size: int
    """Threads of a warp."""
    runtime_library: str
    """Part of the file name of the runtime library that torch loads."""
    runtime_prefix: str
    """The prefix of that library's functions (`cudaMalloc`)."""
    compiler: ModuleType
    """Triton's module that compiles for it, which no candidate may change."""

    @abstractmethod
    def start(self) -> None:
        """Create this process's context on the GPU."""

    @abstractmethod
    def prepare_server(self) -> None:
        """Run the one-time set-up of Triton's driver, in a server that never uses the GPU."""

    @abstractmethod
    def arch(self) -> int:
        """The current GPU's architecture, as `Target.arch` has it."""

    @abstractmethod
    def stopped_when_too_big(self, limit: int) -> AbstractContextManager[None]:
        """Inside, compiling raises OutOfResources as soon as a kernel needs more shared memory than `limit` bytes."""

    @abstractmethod
    def log_usage(self) -> None:
        """Have the assembler print to stdout what a kernel uses."""

    @abstractmethod
    def usage(self, log: str) -> tuple[int | None, int | None]:
        """Registers and bytes spilled, from what the assembler printed about the last kernel in `log`."""

    @abstractmethod
    def ran_out(self, assembler_error: str) -> bool:
        """Whether the assembler rejected a kernel because it is too big, not because it is wrong."""

    def target(self, arch: int) -> GPUTarget:
        """The target for `triton.compile`."""
        return GPUTarget(self.triton_name, arch, self.warp_size)


class Cuda(GpuBackend):
    __slots__ = ()
    triton_name = "cuda"
    torch_version = "cuda"
    warp_size = 32
    runtime_library = "libcudart"
    runtime_prefix = "cuda"
    compiler = nvidia_compiler

    def start(self) -> None:
        """Create this process's CUDA context.

        Until the device count is cached, torch asks NVML for it. The server has asked NVML before it forked
        this process, with file descriptors that are closed or reused here, so NVML's answer is unreliable.
        """
        torch.cuda._cached_device_count = torch._C._cuda_getDeviceCount()
        torch.cuda.init()

    def prepare_server(self) -> None:
        from triton.backends.nvidia import driver

        driver.library_dirs()  # it runs a program, and caches the answer

    def arch(self) -> int:
        major, minor = torch.cuda.get_device_capability()
        return int(10 * major + minor)

    @contextmanager
    def stopped_when_too_big(self, limit: int) -> Iterator[None]:
        """LLVM takes minutes for kernels that are far too big, so look before it starts."""
        real = CUDABackend.make_llir

        def make_llir(self: CUDABackend, module: Any, metadata: dict[str, Any], *rest: Any) -> Any:
            needed = _shared_memory(module, lambda copy: real(self, copy, dict(metadata), *rest))
            if needed > limit:
                raise OutOfResources(needed, limit, "shared memory")
            return real(self, module, metadata, *rest)

        with mock.patch.object(CUDABackend, "make_llir", make_llir):
            yield

    def log_usage(self) -> None:
        knobs.nvidia.dump_ptxas_log = True

    def usage(self, log: str) -> tuple[int | None, int | None]:
        registers = re.findall(r"Used (\d+) registers", log)
        spills = re.findall(r"(\d+) bytes spill stores", log)
        return (int(registers[-1]) if registers else None, int(spills[-1]) if spills else None)

    def ran_out(self, assembler_error: str) -> bool:
        return any(way in assembler_error for way in _WAYS_TO_RUN_OUT)


_WAYS_TO_RUN_OUT = (
    "too much shared data",
    "too much local data",
    "too many resources",
    "register allocation failed",
)


class _Allocated(Exception):
    """Carries the compiler's passes up to the one that allocates shared memory."""


def _shared_memory(module: Any, lower: Callable[[Any], object]) -> int:
    """Shared memory that a block needs.

    Lowers a copy of the module with the compiler's own passes until it is known.
    """
    with NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(str(module))
        file.flush()
        copy = ir.parse_mlir_module(file.name, module.context)
    copy.context = module.context

    def stop(passes: Any) -> None:
        raise _Allocated(passes)

    # The pass after the one that allocates shared memory.
    with mock.patch.object(nvidia.passes.ttnvgpuir, "add_allocate_tensor_memory", stop):
        try:
            lower(copy)
        except _Allocated as stopped:
            stopped.args[0].run(copy, "shared memory")
    needed: int = copy.get_int_attr("ttg.shared")
    return needed


BACKENDS: dict[str, GpuBackend] = {backend.triton_name: backend for backend in (Cuda(),)}


def backend_here() -> GpuBackend:
    """The backend that torch was built for. If it was built for none, the first one fails with torch's message."""
    built = (one for one in BACKENDS.values() if getattr(torch.version, one.torch_version, None))
    return next(built, BACKENDS["cuda"])
