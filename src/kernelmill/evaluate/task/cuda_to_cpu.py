"""Run sources that are written for a GPU on the CPU: `with CudaToCpu(): ...`.

Inside, torch uses the CPU wherever a source asks for a CUDA device: `device="cuda"`, `.cuda()`,
`.to("cuda:0")`. Nothing pretends to be on a GPU: `is_cuda` is false, and `torch.cuda.is_available()` is not
changed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_CPU = torch.device("cpu")


class CudaToCpu(TorchFunctionMode):  # type: ignore[misc]
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0]
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _here(kwargs["device"])}
        if func is torch.Tensor.to:
            args = tuple(_here(value) for value in args)
        return func(*args, **kwargs)


def _here(value: Any) -> Any:
    """The CPU for a CUDA device; any other value, including other strings, unchanged."""
    named = isinstance(value, str) and value.split(":")[0] == "cuda"
    if named or (isinstance(value, torch.device) and value.type == "cuda"):
        return _CPU
    return value
