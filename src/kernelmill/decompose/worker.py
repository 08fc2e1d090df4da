"""Decompose one model: a worker for `kernelmill.sandbox`, with compressed replies.

A reply is limited to 8 MB, and the files of a large model are highly repetitive. `model_folder.unpacked` is
the other end. This executes untrusted code: use it only in a sandboxed process.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from typing import Any

import torch

from kernelmill.decompose.cut.partition import partition
from kernelmill.decompose.record.capture import build, capture, other_shapes
from kernelmill.decompose.record.graph import graph_of
from kernelmill.decompose.record.tensor_literals import sign_of, tensor_expression
from kernelmill.decompose.record.types import Record
from kernelmill.decompose.sources.source_parts import standing_alone
from kernelmill.decompose.write.class_body import Weight
from kernelmill.decompose.write.files import Files
from kernelmill.decompose.write.tree_json import Source
from kernelmill.evaluate.task import offline_models

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
    offline_models.prepare()
    decomposed({"code": _WARM_UP, "name": "warm_up", "source_file": "", "source_level": None})


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """The files of a decomposed model (see `decomposed`); with `graph`, only the graph of the `code`."""
    if request.get("graph"):
        warnings.simplefilter("ignore")
        return _packed(graph_of(capture(request["code"])))
    return _packed(decomposed(request))


def decomposed(request: dict[str, Any]) -> dict[str, str]:
    """Decompose a model and return the texts of all files.

    The request has `code`, `name`, `source_file`, `source_level` and optionally `assumptions`, which are added
    to the tree, and `symbolic_sizes` (whether to derive sizes symbolically, see `write.emit`; true by
    default).
    """
    warnings.simplefilter("ignore")
    code = request["code"]
    record = capture(code)
    root = partition(record, request["source_level"])
    alone = standing_alone(code)
    assumptions = request.get("assumptions", [])
    source = Source(
        code, request["name"], request["source_file"], request["source_level"], alone, assumptions
    )
    weights = _weights(record, code)
    made = Files(record, root, weights, source, {})
    files = made.written()
    if made.unknown_sizes() and request.get("symbolic_sizes", True):
        files = Files(record, root, weights, source, other_shapes(record, code)).written()
    return files


def _packed(value: dict[str, Any]) -> dict[str, Any]:
    return {"packed": base64.b64encode(zlib.compress(json.dumps(value).encode("ascii"))).decode("ascii")}


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
