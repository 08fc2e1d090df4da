"""Which names of torch give tensors, as torch itself says. Import it in a sandboxed process only."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import nn

_MAKERS = {
    "arange", "as_tensor", "bartlett_window", "blackman_window", "complex", "empty", "empty_strided", "eye", "full", "hamming_window",
    "hann_window", "kaiser_window", "linspace", "logspace", "normal", "ones", "polar", "rand", "randint", "randn", "randperm", "range",
    "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros",
}  # fmt: skip
"""torch functions that create tensors from numbers."""
_NO_TENSOR = {
    "allclose", "backward", "can_cast", "cpu", "cuda", "data_ptr", "detach", "detach_", "dim", "element_size", "equal", "get_device",
    "is_nonzero", "item", "ndimension", "nelement", "numel", "numpy", "pin_memory", "record_stream", "register_hook", "requires_grad_",
    "resize_", "result_type", "retain_grad", "set_", "share_memory_", "sparse_dim", "dense_dim", "storage", "storage_offset",
    "storage_type", "stride", "to_dense", "tolist", "type_promotion", "typed_storage", "untyped_storage", "xpu",
}  # fmt: skip
"""Functions and methods that return no tensor, or change more than numbers."""
TAKE_SIZES = {
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "arange", "as_strided", "broadcast_to", "chunk", "empty", "expand", "eye", "fold", "full", "int", "interpolate",
    "linspace", "max_unpool1d", "max_unpool2d", "max_unpool3d", "narrow", "new_empty", "new_full", "new_ones", "new_zeros", "one_hot",
    "ones", "pad", "rand", "randint", "randn", "repeat", "repeat_interleave", "reshape", "roll", "select", "slice", "split", "tensor_split",
    "tile", "topk", "tril", "tril_indices", "triu", "triu_indices", "unflatten", "unfold", "upsample", "view", "zeros",
}  # fmt: skip
"""Functions whose arguments are sizes, so that a rounded size is allowed there."""


def gives_tensors(place: str) -> bool:
    """Whether a torch name is a tensor function, a tensor constructor or a layer.

    Also true for `math` names.
    """
    module, _, name = place.rpartition(".")
    if module == "math":
        return True
    found = find(place)
    if isinstance(found, type):
        return issubclass(found, nn.Module) or found is nn.Parameter
    if module.startswith(("torch.nn.init", "torch.nn.utils", "torch.ops.aten")):
        return True
    if module == "torch.nn.functional" and is_plain(name):  # some cannot be overridden: `hardswish`
        return callable(found) and not name.startswith(("assert_", "boolean_", "handle_"))
    return is_plain(name) and (name in _MAKERS or id(found) in _overridable())


def is_plain(name: str) -> bool:
    """Whether a function or method returns a tensor, not something Python could branch on."""
    return name not in _NO_TENSOR and not name.startswith(("is_", "get_", "has_", "__")) and name != "is"


def find(place: str) -> Any:
    found: Any = torch
    for step in place.split(".")[1:]:
        found = getattr(found, step, None)
    return found if place.startswith("torch") else None


@cache
def _overridable() -> set[int]:
    """Ids of the functions that a tensor subclass could override, which are those that work on tensors."""
    return {id(one) for some in torch.overrides.get_overridable_functions().values() for one in some}
