"""Write expressions for the inputs of a part, with values like those that it gets inside the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernelmill.decompose.cut.kinds import fusion_role, short_of
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.literals import constant
from kernelmill.decompose.record.types import Op, Value, values_of

_NON_NEGATIVE_RESULT = frozenset([
    "relu", "ReLU", "relu6", "ReLU6", "sigmoid", "Sigmoid", "exp", "abs", "square", "softplus", "Softplus",
    "hardsigmoid", "Hardsigmoid", "sqrt", "rsqrt", "softmax", "Softmax", "norm", "vector_norm", "var", "std",
    "cdist", "rand", "rand_like", "ones", "ones_like", "eye",
])  # fmt: skip
"""Operations whose results are never negative."""
_PRESERVES_NON_NEGATIVE = frozenset([
    "mean", "sum", "amax", "amin", "max", "min", "cumsum", "cumprod", "prod", "mul", "div", "add",
    "true_divide", "__truediv__", "__rtruediv__", "reciprocal", "maximum", "pow", "__pow__", "cat", "stack",
    "index_select", "gather", "repeat", "repeat_interleave", "clamp", "flip", "roll", "dropout",
])  # fmt: skip
"""Operations that keep non-negative inputs non-negative."""
_NEEDS_NON_NEGATIVE = frozenset(
    ["log", "log2", "log10", "log1p", "sqrt", "rsqrt", "log_", "sqrt_", "rsqrt_", "lgamma"]
)
"""Operations that are undefined for negative numbers."""
_TO_INTEGERS = frozenset(["long", "int", "to", "type"])
_FAR = 12
_FLOATS = ("float32", "float64", "float16", "bfloat16")


def example_input(part: Part, value: Value) -> str:
    """An expression for an input of a part, with values like those it gets inside the model."""
    if value.shape is None:
        return constant(value.example)
    sizes = constant(value.shape)
    shape = sizes[1:-1].rstrip(",") if value.shape else "()"
    typed = "" if value.dtype == "float32" else f", dtype=torch.{value.dtype}"
    if value.dtype == "bool":
        return f"torch.rand({shape}) > 0.5"
    if value.dtype in _FLOATS:
        maker = _maker(value)
        if maker in ("softmax", "Softmax"):
            return f"torch.softmax(torch.randn({shape}{typed}), dim=-1)"
        if (bound := _bound_as_integer(part, value)) is not None:
            return f"torch.randint(0, {bound}, {sizes}, dtype=torch.{value.dtype})"
        positive = _is_non_negative(value) or _needs_non_negative(part, value)
        return f"torch.{'rand' if positive else 'randn'}({shape}{typed})"
    if bags := next((op for op in part.ops if op.module and op.module.kind == "EmbeddingBag"), None):
        indices, *offsets = bags.args
        if offsets and offsets[0] is value:  # from 0 on, in order
            return f"torch.arange({value.shape[0]}) * {indices.shape[0] // value.shape[0]}"
    if value.dtype.startswith("complex"):
        return f"torch.randn({shape}{typed})"
    if value.seen:
        return value.seen
    return f"torch.randint(0, {_bound(part, value) or 2}, {sizes}{'' if value.dtype == 'int64' else typed})"


def _maker(value: Value) -> str:
    """The operation that made the values, ignoring layout changes."""
    while value.op is not None and fusion_role(value.op) == "layout":
        sources = [one for one in value.op.inputs() if one.kind == "result"]
        if len(sources) != 1:
            break
        value = sources[0]
    return short_of(value.op) if value.op is not None else ""


def _is_non_negative(tree: Any, far: int = _FAR) -> bool:
    """Whether it is known to contain no negative number."""
    if not isinstance(tree, Value):
        return isinstance(tree, int | float) and tree >= 0
    op = tree.op
    if op is None:
        return tree.shape is None and isinstance(tree.example, int | float) and tree.example >= 0
    short = short_of(op)
    if short in _NON_NEGATIVE_RESULT:
        return True
    if short in ("clamp", "clamp_min", "clip") and _floor(op) >= 0:
        return True
    if short in ("pow", "__pow__") and op.args[1] in (2, 4):
        return True
    if short in ("mul", "__mul__") and op.args[0] is op.args[1]:
        return True
    if far == 0 or not (fusion_role(op) == "layout" or short in _PRESERVES_NON_NEGATIVE):
        return False
    if short in ("cat", "stack"):
        return all(_is_non_negative(one, far - 1) for one in op.args[0])
    sources = [one for one in op.args if isinstance(one, Value) and one.shape is not None]
    numbers = op.args[1:2] if short in ("add", "mul", "div", "maximum") else ()
    return bool(sources) and all(_is_non_negative(one, far - 1) for one in (*sources, *numbers))


def _floor(op: Any) -> float:
    """The lower bound of a clamp."""
    least = op.kwargs.get("min", op.args[1] if len(op.args) > 1 else None)
    return float(least) if isinstance(least, int | float) else float("-inf")


def _consumers(
    part: Part, value: Value, passed_on: Callable[[Op], set[Value]]
) -> Iterator[tuple[Op, set[Value]]]:
    """The calls of a part that read a value, directly or after calls that pass it on.

    With each call come all values that the value was passed on as. `passed_on` returns those that a call adds.
    """
    same = {value}
    for op in part.ops:
        if same & set(op.inputs()):
            yield op, same
            same |= passed_on(op)


def _laid_out(op: Op) -> set[Value]:
    """The results of a layout change, which are its input's values; nothing for other calls."""
    return set(op.outputs()) if fusion_role(op) == "layout" else set()


def _needs_non_negative(part: Part, value: Value) -> bool:
    """Whether the part takes a logarithm or root of it, or of sums and means of it."""

    def passed_on(op: Op) -> set[Value]:
        keeps = fusion_role(op) == "layout" or short_of(op) in _PRESERVES_NON_NEGATIVE
        # The mean of squares accepts any number.
        return {one for one in op.outputs() if not _is_non_negative(one)} if keeps else set()

    return any(short_of(op) in _NEEDS_NON_NEGATIVE for op, _ in _consumers(part, value, passed_on))


def _bound_as_integer(part: Part, value: Value) -> int | None:
    """The index bound of a float input that the part converts to integers; None if it does not."""
    for op, _ in _consumers(part, value, _laid_out):
        integers = [one for one in op.outputs() if one.dtype in ("int64", "int32")]
        if integers and short_of(op) in _TO_INTEGERS:
            return _bound(part, integers[0])
    return None


def _bound(part: Part, value: Value) -> int | None:
    """The exclusive upper bound that keeps indices valid for everything they index."""
    found = [
        _bound_of(op, short_of(op), same)
        for op, same in _consumers(part, value, _laid_out)
        if fusion_role(op) != "layout"
    ]
    return min((bound for bound in found if bound), default=None)


def _bound_of(op: Any, short: str, same: set[Value]) -> int | None:
    others: list[Any] = [one for one in values_of(op.args) if one.shape is not None and one not in same]
    if op.module is not None and op.module.kind in ("Embedding", "EmbeddingBag"):
        return int(op.module.required["num_embeddings"])
    if short == "embedding" and others:
        return int(others[0].shape[0])
    if short == "__getitem__" and op.args[0] not in same:
        index = op.args[1] if isinstance(op.args[1], tuple) else (op.args[1],)
        at = next((n for n, item in enumerate(index) if isinstance(item, Value) and item in same), 0)
        return int(op.args[0].shape[min(at, len(op.args[0].shape) - 1)])
    if (
        short in ("gather", "index_select", "take_along_dim", "scatter", "scatter_add", "index_add")
        and others
    ):
        axis = next((one for one in op.args if isinstance(one, int)), op.kwargs.get("dim", 0))
        return int(others[0].shape[axis])
    if short in ("cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss") and others:
        return int(others[0].shape[1 if len(others[0].shape) > 1 else 0])
    if short == "one_hot":
        classes = op.kwargs.get("num_classes", op.args[1] if len(op.args) > 1 else None)
        return int(classes) if classes and classes > 0 else None
    return None
