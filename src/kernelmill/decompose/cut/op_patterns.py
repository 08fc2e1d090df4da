"""Recognise calls that are one kernel, and kernels that are one fusion.

Calls are one kernel if they have one name (`x * torch.sigmoid(x)`) or write one tensor part by part.
"""

from __future__ import annotations

from itertools import pairwise

from kernelmill.decompose.cut.kinds import fusion_role, short_of, title_of
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.record.types import Op, Value

_TOGETHER = (
    ("rms_norm", ("pow|square|mul", "mean", "add", "rsqrt", "mul", "mul")),
    ("rms_norm", ("pow|square|mul", "mean", "add", "rsqrt", "mul")),
    ("rms_norm", ("pow|square|mul", "mean", "add", "sqrt", "div")),
    ("gelu_tanh", ("pow", "mul", "add", "mul", "tanh", "add", "mul")),
    ("mish", ("softplus", "tanh", "mul")),
    ("masked_fill", ("eq|ne|lt|le|gt|ge|logical_not", "masked_fill")),
    ("silu", ("sigmoid", "mul")),
)
_GATED = ("silu", "mish")
"""x times a function of x."""


def named_groups(ops: list[Op]) -> list[tuple[str, list[Op]]]:
    found: list[tuple[str, list[Op]]] = []
    at = 0
    while at < len(ops):
        for title, names in _TOGETHER:
            some = ops[at : at + len(names)]
            fits = len(some) == len(names) and all(
                title_of(op) in name.split("|") for op, name in zip(some, names, strict=True)
            )
            if (
                fits
                and _feeds(some)
                and (title not in _GATED or set(some[0].inputs()) <= set(some[-1].inputs()))
            ):
                found.append((title, some))
                break
        else:
            some = _assignments(ops, at)
            found.append((title_of(ops[at]), some))
        at += len(some)
    return found


def _assignments(ops: list[Op], at: int) -> list[Op]:
    """The call at this position and, if it writes part of a tensor, the following writes into that tensor."""
    some = [ops[at]]
    for op in (ops[place] for place in range(at + 1, len(ops))):
        if not short_of(some[-1]) == short_of(op) == "__setitem__" or op.args[0] not in some[-1].outputs():
            break
        if not all(_there(value, some[0]) for value in op.inputs() if value is not op.args[0]):
            break
        some.append(op)
    return some


def _there(value: Value, first: Op) -> bool:
    """Whether a value is available before this call, if necessary by moving layout changes ahead of it."""
    if value.op is None or value.op.index < first.index:
        return True
    moved = fusion_role(value.op) == "layout" and value.op.scope is first.scope
    return moved and all(_there(one, first) for one in value.op.inputs())


def _feeds(ops: list[Op]) -> bool:
    return (
        all(set(a.outputs()) & set(b.inputs()) for a, b in pairwise(ops))
        and len({op.scope for op in ops}) == 1
    )


# ------------------------------------------------------------------------------------------ fusions


def _qkv(parts: list[Part]) -> bool:
    return all(part.title == "linear" for part in parts) and len({tuple(part.inputs) for part in parts}) == 1


_PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum")


def _attention(parts: list[Part]) -> bool:
    """Whether it is attention: scores, pointwise operations on them, softmax, values."""
    kinds = [part.kind for part in parts]
    return (
        kinds[0] == kinds[-1] == "heavy"
        and not {"softmax", "activation"}.isdisjoint(kinds[1:-1])
        and all(kind in ("softmax", "pointwise", "activation") for kind in kinds[1:-1])
        and parts[0].title in _PRODUCTS
        and parts[-1].title in _PRODUCTS
        and _in_a_row(parts)
    )


def _gated(parts: list[Part]) -> bool:
    """Whether it is linear, activation, linear, product: SwiGLU and its variants."""
    gate, act, up, product = parts
    return (
        gate.title == up.title == "linear"
        and act.kind in ("activation", "pointwise")
        and product.title == "mul"
        and gate.inputs == up.inputs
        and set(act.inputs) <= set(gate.outputs)
        and set(product.inputs) == {*act.outputs, *up.outputs}
    )


def _in_a_row(parts: list[Part]) -> bool:
    return all(set(a.outputs) & set(b.inputs) for a, b in pairwise(parts))


FUSIONS = (
    ((5, 4, 3), "attention", _attention, "the scores need not be written to memory"),
    ((4,), "gated_linear", _gated, "two products of one input, multiplied before they are written"),
    ((3,), "qkv", _qkv, "three products of one input are one, with their weights side by side"),
)
"""The lengths of a known fusion, its title, whether kernels are one, and why they belong together."""
