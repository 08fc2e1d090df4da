"""Decompose one model: a worker for `kernelmill.sandbox`.

This executes untrusted code: call `handle` only in a sandboxed process.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from kernelmill.decompose.cut.partition import partition
from kernelmill.decompose.record.capture import build, capture, other_shapes
from kernelmill.decompose.record.tensor_literals import sign_of, tensor_expression
from kernelmill.decompose.record.types import Record
from kernelmill.decompose.sources.source_parts import standing_alone
from kernelmill.decompose.write.class_body import Weight
from kernelmill.decompose.write.files import Files, Source

_WARM_UP = """
import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(8, 4)
    def forward(self, x):
        return F.softmax(self.linear(F.relu(self.norm(self.conv(x))).flatten(1)) @ torch.ones(4, 4) + 1, dim=-1)
def get_inputs():
    return [torch.rand(2, 1, 4, 4)]
def get_init_inputs():
    return []
"""


def prepare() -> None:
    """Trigger torch's one-time initialisation before the server forks children."""
    handle({"code": _WARM_UP, "name": "warm_up", "source_file": "", "source_level": None})


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Decompose a model and return the texts of all files.

    The request has `code`, `name`, `source_file`, `source_level` and optionally `entry_point` and `symbolic_sizes`
    (whether to derive sizes symbolically, see `write.emit`; true by default).
    """
    warnings.simplefilter("ignore")
    code = request["code"]
    entry_point = request.get("entry_point") or "Model"
    record = capture(code, entry_point)
    root = partition(record, request["source_level"])
    alone = standing_alone(code, entry_point)
    source = Source(code, request["name"], request["source_file"], request["source_level"], alone)
    weights = _weights(record, code)
    made = Files(record, root, weights, source, None)
    files = made.written()
    if made.unknown_sizes() and request.get("symbolic_sizes", True):
        files = Files(record, root, weights, source, other_shapes(record, code)).written()
    return {"files": files}


def _weights(record: Record, code: str) -> dict[str, Weight]:
    """How to create each tensor that functions use directly."""
    used = {value.name for op in record.root.ops() for value in op.inputs() if value.kind == "weight"}
    real: dict[str, torch.Tensor] = {}
    if used:
        real = {name: tensor for name, tensor in build(code) if name in used and not tensor.is_meta}
    found = {}
    for name, value in record.weights.items():
        parameter = name in record.parameters
        text = tensor_expression(real[name]) if name in real and not parameter else None
        sign = sign_of(real[name]) if name in real and parameter else 0
        assert value.shape is not None
        found[name] = Weight(value.shape, value.dtype, parameter, text, sign)
    return found


__all__ = ["handle", "prepare"]
