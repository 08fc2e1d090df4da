"""Track which tensors would be in host memory on a GPU machine: made without a device, or moved to the CPU.

Here all memory is the CPU's. Host memory is marked on its storage, so views, detached tensors and parameters
of the same memory share the mark. Unmarked memory counts as a GPU's. Two things then fail as on a GPU: a
launch that is given host memory, and a torch operation between the two if that is certainly an error.

Never marked, so never rejected: tensors from torch.Tensor(...) and the like, which no torch function mode sees, and tensors without elements, which have no memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _device

from kernelmill.torch_calls.tensors import tensors_in

_MARK = "_kernelmill_host"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_storage = torch.Tensor.untyped_storage
_clone = torch.Tensor.clone
_from_numpy, _frombuffer = torch.from_numpy, torch.frombuffer

# Functions that reject tensors on two devices. Others accept them (copy_, indexing by a host tensor, lengths
# of sequences).
_names = (
    "add", "sub", "mul", "div", "true_divide", "floor_divide", "remainder", "fmod", "pow", "maximum", "minimum",
    "matmul", "mm", "bmm", "mv", "dot", "addmm", "baddbmm", "where", "cat", "stack", "eq", "ne", "lt", "le", "gt",
    "ge", "atan2", "lerp", "addcmul", "addcdiv", "logical_and", "logical_or",
)  # fmt: skip
_operators = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "eq", "ne", "lt", "le", "gt", "ge", "radd",
    "rsub", "rmul", "rtruediv", "rpow", "rmatmul", "iadd", "isub", "imul", "itruediv",
)  # fmt: skip
_functional = (
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "layer_norm", "batch_norm", "group_norm", "embedding",
)  # fmt: skip
_ONE_DEVICE: frozenset[Any] = frozenset(
    [getattr(torch, name) for name in _names]
    + [getattr(torch.Tensor, name) for name in _names if hasattr(torch.Tensor, name)]
    + [getattr(torch.Tensor, f"{name}_") for name in _names if hasattr(torch.Tensor, f"{name}_")]
    + [getattr(torch.Tensor, f"__{name}__") for name in _operators]
    + [getattr(torch.nn.functional, name) for name in _functional]
)


_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
"""Whether a tensor stands for others, as those inside vmap do."""


def _has_memory(tensor: Any) -> bool:
    return (
        type(tensor) in _PLAIN
        and not _is_wrapped(tensor)
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and tensor.numel() > 0
    )


def is_host(tensor: Any) -> bool:
    with torch._C.DisableTorchFunction():
        return _has_memory(tensor) and getattr(_storage(tensor), _MARK, False)


class _GpuStorage(torch.UntypedStorage):  # type: ignore[misc]
    """What code that asks for a tensor's memory on a GPU sees."""

    device = property(lambda self: torch.device("cuda", 0))
    is_cuda = property(lambda self: True)

    def clone(self) -> Any:
        return torch.UntypedStorage(self.nbytes()).copy_(self)


def storage_of(tensor: Any) -> Any:
    """The tensor's storage, which is the same object each time, as it looks on its device."""
    with torch._C.DisableTorchFunction():
        storage = _storage(tensor)
    if _has_memory(tensor) and not getattr(storage, _MARK, False) and type(storage) is torch.UntypedStorage:
        storage.__class__ = _GpuStorage
    return storage


def mark(tensor: Any, host: bool) -> None:
    """Mark where this tensor's memory is."""
    with torch._C.DisableTorchFunction():
        if not _has_memory(tensor):
            return
        storage = _storage(tensor)
        if host:
            setattr(storage, _MARK, True)
        elif hasattr(storage, _MARK):
            delattr(storage, _MARK)


def moved(tensor: Any, result: Any, host: bool) -> Any:
    """The result of moving `tensor`: `result`, with its own memory if the tensor was elsewhere."""
    if is_host(tensor) == host or not _has_memory(result):
        return result
    if _shares(tensor, result):
        result = _clone(result)
    mark(result, host)
    return result


def _shares(a: Any, b: Any) -> bool:
    with torch._C.DisableTorchFunction():
        return _has_memory(a) and _storage(a).data_ptr() == _storage(b).data_ptr()


def wants_host(device: Any) -> bool:
    """Whether this device, or the default device for None, is the host."""
    device = _device.CURRENT_DEVICE if device is None else device
    if device is None:
        return True
    return not isinstance(device, int) and torch.device(device).type == "cpu"


def check(func: Any, given: list[Any]) -> None:
    """Reject what a GPU rejects: operands in both host and GPU memory. Numbers (0-dim) are exempt."""
    if func in _ONE_DEVICE:
        where = {is_host(tensor) for tensor in given if tensor.dim() and _has_memory(tensor)}
        if len(where) > 1:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
            )


def settle(given: list[Any], device: Any, result: Any) -> Any:
    """Return the result of an operation with its new memory marked.

    `device` is the requested device, or None.
    """
    if not given:
        if wants_host(device):
            for tensor in tensors_in(result):
                mark(tensor, True)
        return result
    if device is not None and isinstance(result, torch.Tensor):
        shared = next((tensor for tensor in given if _shares(tensor, result)), None)
        if shared is not None:
            return moved(shared, result, wants_host(device))
        mark(result, wants_host(device))
    elif all(is_host(tensor) for tensor in given):
        for tensor in tensors_in(result):
            mark(tensor, True)
    return result


def place(model: Any) -> None:
    """model.cuda(): parameters and buffers go to the GPU, other attributes stay where they are."""
    if isinstance(model, torch.nn.Module):
        for tensor in [*model.parameters(), *model.buffers()]:
            mark(tensor, False)


def from_numpy(array: Any) -> Any:
    result = _from_numpy(array)
    mark(result, True)
    return result


def frombuffer(*args: Any, **kwargs: Any) -> Any:
    result = _frombuffer(*args, **kwargs)
    mark(result, True)
    return result
