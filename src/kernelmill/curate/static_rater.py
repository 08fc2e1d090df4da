"""Rate the difficulty of a task by program analysis: apply the criteria of `prompts/rate.md` to operations.

The operations come from a trace if there is one, else from the syntax tree; the evidence says which. Only
counts operations: does not recognise a well-known function written out in steps, and ignores how hard the
sizes are.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from kernelmill.base.rows import Difficulty
from kernelmill.problems.facts import ModuleFacts, Trace
from kernelmill.problems.source import ModuleSource
from kernelmill.torch_calls.op_kinds import OpKind

MATRIX: tuple[OpKind, ...] = ("matmul", "convolution")
WHOLE: dict[OpKind, str] = {"attention": "attention", "recurrent": "a recurrent layer"}
REDUCING: tuple[OpKind, ...] = ("reduction", "normalization", "softmax", "pooling", "gather", "scan_sort")
FREE: tuple[OpKind, ...] = ("view", "copy", "creation")
SIMPLE_CHAIN = 10
"""Maximum number of elementwise operations of a simple chain. A hand-written GELU has eight."""
MANY_REDUCTIONS = 6

_LAYERS: dict[str, OpKind] = {
    "Linear": "matmul", "LazyLinear": "matmul", "Bilinear": "matmul",
    "Conv1d": "convolution", "Conv2d": "convolution", "Conv3d": "convolution",
    "ConvTranspose1d": "convolution", "ConvTranspose2d": "convolution", "ConvTranspose3d": "convolution",
    "LSTM": "recurrent", "GRU": "recurrent", "RNN": "recurrent",
    "LSTMCell": "recurrent", "GRUCell": "recurrent", "RNNCell": "recurrent",
    "MultiheadAttention": "attention", "Transformer": "attention", "TransformerEncoderLayer": "attention",
    "TransformerDecoderLayer": "attention", "TransformerEncoder": "attention", "TransformerDecoder": "attention",
    "LayerNorm": "normalization", "GroupNorm": "normalization", "RMSNorm": "normalization",
    "BatchNorm1d": "normalization", "BatchNorm2d": "normalization", "BatchNorm3d": "normalization",
    "InstanceNorm1d": "normalization", "InstanceNorm2d": "normalization", "InstanceNorm3d": "normalization",
    "Softmax": "softmax", "LogSoftmax": "softmax", "Softmin": "softmax", "Softmax2d": "softmax",
    "Embedding": "gather", "EmbeddingBag": "gather",
    "MaxPool1d": "pooling", "MaxPool2d": "pooling", "MaxPool3d": "pooling",
    "AvgPool1d": "pooling", "AvgPool2d": "pooling", "AvgPool3d": "pooling",
    "AdaptiveAvgPool1d": "pooling", "AdaptiveAvgPool2d": "pooling", "AdaptiveMaxPool2d": "pooling",
    "Identity": "view", "Flatten": "view", "Unflatten": "view", "Sequential": "view", "ModuleList": "view",
    "ModuleDict": "view", "Parameter": "view", "ParameterList": "view", "Dropout": "elementwise",
}  # fmt: skip
_NOT_LAYERS = {"Module"}
_CALLS: dict[str, OpKind] = {
    **dict.fromkeys(("@", "matmul", "mm", "bmm", "einsum", "linear", "addmm", "baddbmm", "tensordot", "bilinear"), "matmul"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), "convolution"),
    "scaled_dot_product_attention": "attention",
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "gumbel_softmax"), "softmax"),
    **dict.fromkeys(("layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "normalize"), "normalization"),
    **dict.fromkeys(
        ("sum", "mean", "max", "min", "amax", "amin", "argmax", "argmin", "norm", "std", "var", "prod", "logsumexp",
         "all", "any", "median", "mse_loss", "l1_loss", "cross_entropy", "nll_loss", "kl_div", "cosine_similarity",
         "binary_cross_entropy", "binary_cross_entropy_with_logits", "smooth_l1_loss", "trace", "cdist"), "reduction"),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
                     "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "interpolate"), "pooling"),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "index_select", "embedding", "take"), "gather"),
    **dict.fromkeys(("cumsum", "cumprod", "sort", "argsort", "topk", "unique"), "scan_sort"),
    **dict.fromkeys(
        ("view", "reshape", "permute", "transpose", "t", "T", "mT", "flatten", "unsqueeze", "squeeze", "expand",
         "expand_as", "chunk", "split", "unbind", "contiguous", "clone", "detach", "to", "float", "half", "cat", "stack",
         "repeat", "size", "type_as", "narrow", "roll", "flip", "unfold", "swapaxes", "movedim", "unflatten"), "view"),
    **dict.fromkeys(("zeros", "ones", "empty", "full", "arange", "zeros_like", "ones_like", "tensor", "linspace", "eye"),
                    "creation"),
}  # fmt: skip


class StaticRating(NamedTuple):
    difficulty: Difficulty
    evidence: str


def rate_facts(facts: ModuleFacts) -> StaticRating:
    """Rate a module. Never fails: a module that could not be traced is rated by its source."""
    if facts.trace is not None:
        counts, names = _traced(facts.trace)
        basis = f"traced on {facts.trace.mode} tensors"
    else:
        counts, names = _read(facts.source)
        basis = f"read from the source, not traced ({facts.trace_error})"
    level, why = _apply(counts)
    listed = ", ".join(f"{name} x{number}" for name, number in names.most_common(12)) or "none"
    more = f" and {len(names) - 12} more kinds" if len(names) > 12 else ""
    kinds = (
        ", ".join(f"{number} {kind}" for kind, number in counts.most_common() if kind not in FREE)
        or "no computation"
    )
    return StaticRating(level, f"{level}: {why}.\nCounted ({basis}): {kinds}.\nOperations: {listed}{more}.")


def _apply(counts: Counter[OpKind]) -> tuple[Difficulty, str]:
    for kind, name in WHOLE.items():
        if counts[kind]:
            return "high", f"{name} is in it"
    matrix = sum(counts[kind] for kind in MATRIX)
    reducing = sum(counts[kind] for kind in REDUCING)
    pointwise = sum(number for kind, number in counts.items() if kind not in (*MATRIX, *REDUCING, *FREE))
    if matrix >= 2:
        if counts["softmax"] and counts["matmul"] >= 2:
            return "high", "matrix products around a softmax, which is attention"
        return "high", f"{matrix} matrix products or convolutions, to be fused or chained"
    if matrix == 1 and reducing + pointwise >= 2:
        return "high", f"a matrix product or convolution fused with {reducing + pointwise} further operations"
    if matrix == 1:
        return "medium", "one standard matrix operation" + (
            " and one operation more" if reducing + pointwise else ""
        )
    if reducing >= MANY_REDUCTIONS:
        return (
            "high",
            f"{reducing} reductions, gathers or scans fused with {pointwise} elementwise operations",
        )
    if reducing:
        return "medium", "basic reductions, gathers or scans, no matrix product"
    if pointwise > SIMPLE_CHAIN:
        return "medium", f"a long elementwise computation of {pointwise} operations"
    if pointwise:
        return "low", "simple elementwise operations only"
    return "low", "nothing is computed: data is copied or handed on"


def _traced(trace: Trace) -> tuple[Counter[OpKind], Counter[str]]:
    counts: Counter[OpKind] = Counter()
    names: Counter[str] = Counter()
    for op in trace.ops:
        counts[op.kind] += 1
        if op.kind not in FREE:
            names[op.op] += 1
    return counts, names


def _read(source: ModuleSource) -> tuple[Counter[OpKind], Counter[str]]:
    counts: Counter[OpKind] = Counter()
    names: Counter[str] = Counter()
    found = [(layer.name, _layer_kind(layer.name), 1) for layer in source.layers]
    found += [
        (name, _CALLS.get(name.rsplit(".", 1)[-1], "elementwise"), number)
        for name, number in source.operations.items()
    ]
    for name, kind, number in found:
        if kind is not None:
            counts[kind] += number
            if kind not in FREE:
                names[name] += number
    return counts, names


def _layer_kind(name: str) -> OpKind | None:
    last = name.rsplit(".", 1)[-1]
    if last.endswith("Loss"):
        return "reduction"
    return None if last in _NOT_LAYERS else _LAYERS.get(last, "elementwise")
