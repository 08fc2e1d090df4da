"""Memory of a GPU that the judge and a candidate's process both see: how large tensors cross in microseconds.

The judge allocates two arenas, one for what it sends and one for what it gets, and the candidate's process opens them
by CUDA IPC handles. Each side copies out of an arena what it wants to keep: the candidate works on memory of its own.
"""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import torch

from kernelmill.evaluate.judge.channel import BadFrame

ALIGNMENT = 256
_HANDLE_BYTES = 64


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


class Arena:
    """Give `handle` on the other side of an arena that `allocate` made."""

    def __init__(self, size: int, pointer: int, handle: str) -> None:
        self.size, self.handle = size, handle
        self._used, self._pointer = 0, pointer
        described = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}
        self._memory = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=described), device="cuda")

    @classmethod
    def allocate(cls, size: int) -> Arena:
        library, pointer, handle = _cudart(), ctypes.c_void_p(), _Handle()
        _check(library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)), "cudaMalloc")
        _check(library.cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "cudaIpcGetMemHandle")
        assert pointer.value is not None
        return cls(size, pointer.value, ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES).hex())

    @classmethod
    def open(cls, size: int, handle: str) -> Arena:
        opened, pointer = _Handle(), ctypes.c_void_p()
        ctypes.memmove(ctypes.byref(opened), bytes.fromhex(handle), _HANDLE_BYTES)
        _check(_cudart().cudaIpcOpenMemHandle(ctypes.byref(pointer), opened, 1), "cudaIpcOpenMemHandle")
        assert pointer.value is not None
        return cls(size, pointer.value, handle)

    def free(self) -> None:
        """Give the memory back, on the side that allocated it. Nothing that was got from here may be used afterwards."""
        del self._memory
        _check(_cudart().cudaFree(ctypes.c_void_p(self._pointer)), "cudaFree")

    def empty(self) -> Arena:
        """Begin again at its start."""
        self._used = 0
        return self

    def put(self, tensor: torch.Tensor) -> dict[str, Any]:
        size = tensor.numel() * tensor.element_size()
        start = self._used
        if start + size > self.size:
            raise MemoryError(f"an arena of {self.size} bytes has no room for {size} more at {start}")
        if size:
            target = self._memory[start : start + size].view(tensor.dtype)
            target.copy_(tensor.reshape(-1), non_blocking=True)
        self._used = start + -(-size // ALIGNMENT) * ALIGNMENT
        return {"at": start}

    def get(self, packed: dict[str, Any], shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        """A view: clone what is to stay."""
        start, size = packed.get("at"), math.prod(shape) * dtype.itemsize
        if type(start) is not int or start < 0 or start % ALIGNMENT or start + size > self.size:
            raise BadFrame(f"{size} bytes at {start} of an arena of {self.size}")
        if not size:
            return torch.empty(shape, dtype=dtype, device="cuda")
        return self._memory[start : start + size].view(dtype).reshape(shape)


def _cudart() -> Any:
    """The run-time library that torch has loaded."""
    torch.cuda.init()
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if "libcudart" in line]
    if not paths:
        raise RuntimeError("torch has loaded no libcudart")
    return ctypes.CDLL(paths[0])


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what}: CUDA error {code}")
