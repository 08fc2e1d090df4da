"""GPU memory shared by the judge and a candidate's process, to pass large tensors in microseconds.

The judge allocates two arenas, one for what it sends and one for what it receives. The candidate's process
opens them by IPC handles. Each side copies what it wants to keep out of an arena, so the candidate works
on its own memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
from types import SimpleNamespace
from typing import Any

import torch

from kernelmill.evaluate.gpu_backends import backend_here
from kernelmill.evaluate.judge.channel import BadFrame

ALIGNMENT = 256
_HANDLE_BYTES = 64


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


class Arena:
    """A block of GPU memory. Pass the `handle` of an arena made by `allocate` to `open` on the other side."""

    def __init__(self, size: int, pointer: int, handle: str) -> None:
        self.size, self.handle = size, handle
        self._used, self._pointer = 0, pointer
        described = {"shape": (size,), "typestr": "|u1", "data": (pointer, False), "version": 3}
        self._memory = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=described), device="cuda")

    @classmethod
    def allocate(cls, size: int) -> Arena:
        pointer, handle = ctypes.c_void_p(), _Handle()
        _runtime("Malloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        _runtime("IpcGetMemHandle", ctypes.byref(handle), pointer)
        assert pointer.value is not None
        return cls(size, pointer.value, ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES).hex())

    @classmethod
    def open(cls, size: int, handle: str) -> Arena:
        opened, pointer = _Handle(), ctypes.c_void_p()
        ctypes.memmove(ctypes.byref(opened), bytes.fromhex(handle), _HANDLE_BYTES)
        _runtime("IpcOpenMemHandle", ctypes.byref(pointer), opened, 1)
        assert pointer.value is not None
        return cls(size, pointer.value, handle)

    def free(self) -> None:
        """Free the memory, on the side that allocated it. Views returned by `get` are invalid afterwards."""
        del self._memory
        _runtime("Free", ctypes.c_void_p(self._pointer))

    def empty(self) -> Arena:
        """Reset the write position to the start."""
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
        """Return a view. Clone it to keep the data."""
        start, size = packed.get("at"), math.prod(shape) * dtype.itemsize
        if type(start) is not int or start < 0 or start % ALIGNMENT or start + size > self.size:
            raise BadFrame(f"{size} bytes at {start} of an arena of {self.size}")
        if not size:
            return torch.empty(shape, dtype=dtype, device="cuda")
        return self._memory[start : start + size].view(dtype).reshape(shape)


def _runtime(name: str, *arguments: Any) -> None:
    """Call a function of the GPU's runtime library. Raises RuntimeError on failure."""
    function = backend_here().runtime_prefix + name
    code = getattr(_library(), function)(*arguments)
    if code:
        raise RuntimeError(f"{function}: CUDA error {code}")


@functools.cache
def _library() -> ctypes.CDLL:
    """The runtime library that torch has loaded."""
    torch.cuda.init()
    name = backend_here().runtime_library
    with open("/proc/self/maps") as maps:
        paths = [line.split()[-1] for line in maps if name in line]
    if not paths:
        raise RuntimeError(f"torch has loaded no {name}")
    return ctypes.CDLL(paths[0])
