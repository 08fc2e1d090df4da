"""Decide whether an output is right: compare its error against the float64 oracle with eager's own error.

With r the oracle's value, e eager's, c the candidate's, ε the machine epsilon of the output's type and rms
that of r:

    relL2(t) = ‖t − r‖₂ / ‖r‖₂        elem(t) = max |t − r| / max(|r|, rms)
    accepted: relL2(c) ≤ a·relL2(e) + b·ε   and   elem(c) ≤ a·elem(e) + d·ε

The checks come in this order: type, dtype, layout, device and shape; positions of NaN and infinity; numbers.
docs/tolerance.md has the constants, what they are based on, and the cases decided by argument. Works on any
device, in chunks (`task.chunked`).

Not covered: fp8 outputs use the constants of fp16, without calibration. The admission of a task shows whether
they are good enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernelmill.evaluate.task.chunked import all_finite, chunk_size, chunks, close, plain, rms
from kernelmill.evaluate.verdict import Status

_MOST = 1e30  # a record holds no infinity
FAR = 4.0
"""Inputs cannot be used if one rounding of them moves the output by more than this many times the bound."""
MOST_SLICED = 1 << 24
_FAR_OFF = 16.0
_OFF = 0.1
FEW = 4
"""An output with fewer elements is a scalar. One value says little, so several seeds are judged together."""


@dataclass(frozen=True)
class Policy:
    """What the task allows."""

    tf32: bool = False
    """Float32 products may round their operands to 10 bits."""
    fp8_products: bool = False
    """It multiplies float8 numbers, which GPUs add up with some 13 bits: that shows in a float32 result."""


IEEE = Policy()


_NONE_IS_EXTREME = 1024
"""Among so many elements the worst one is no outlier."""


@dataclass(frozen=True)
class _Rule:
    eps: float
    a: float
    b: float
    d: float
    grows: bool = False
    """The bound of the worst element grows with their number, as the extreme of so many rounding errors does."""

    def worst(self, elements: float) -> float:
        if not self.grows or elements <= _NONE_IS_EXTREME:
            return self.d
        return self.d * math.sqrt(math.log(elements) / math.log(_NONE_IS_EXTREME))


@dataclass
class Comparison:
    ok: bool
    status: Status | None = None
    relL2_eps: float | None = None
    elem_eps: float | None = None
    bound: list[float] | None = None
    worst: dict[str, Any] = field(default_factory=dict)
    """`index`, `expected` (the oracle's value) and `got`, if numbers or the positions of NaN differ."""
    detail: str = ""
    place: int = 0
    """The position of the compared output among all outputs."""


def rule_for(dtype: torch.dtype, policy: Policy) -> _Rule:
    eps = float(torch.finfo(dtype).eps)
    if eps > 1e-4:  # float16, bfloat16 and float8
        return _Rule(eps, a=2, b=0.5, d=4, grows=True)
    if policy.tf32 and dtype in (torch.float32, torch.complex64):
        return _Rule(2.0**-11, a=8, b=2, d=16)
    if policy.fp8_products and dtype == torch.float32:
        return _Rule(2.0**-12, a=8, b=2, d=16)
    return _Rule(eps, a=8, b=32, d=256)


def compare(
    candidate: Any, reference64: torch.Tensor, eager: torch.Tensor, policy: Policy = IEEE
) -> Comparison:
    """Compare one output.

    `reference64` is the oracle's output: float64, or the task's own type for integers. `eager` is the task's.
    """
    if (trouble := _form(candidate, eager)) is not None:
        return trouble
    if not eager.numel():
        return Comparison(True, detail="empty")
    c, r, e = (_real(t.detach()) for t in (candidate, reference64, eager))
    if not c.is_floating_point():
        return _exact(c, r, e)
    if (trouble := _nonfinite(c, r, e)) is not None:
        return trouble
    return _numbers(c, r, e, rule_for(candidate.dtype, policy))


def differing(candidate: torch.Tensor, reference: torch.Tensor, policy: Policy = IEEE) -> torch.Tensor:
    """Which elements are not the reference's: other integers, or further away than the allowance for any element."""
    if not candidate.is_floating_point():
        return candidate != reference.to(candidate.device)
    rule, (c, r) = rule_for(candidate.dtype, policy), (t.detach().double() for t in (candidate, reference))
    size = r.abs().clamp(min=rms(r))
    return ((c - r).abs() > rule.worst(r.numel()) * rule.eps * size) | (c.isfinite() != r.isfinite())


def lost_slice(candidate: torch.Tensor, reference64: torch.Tensor, eager: torch.Tensor) -> str:
    """Name a slice that is wrong though the whole is within its bounds, because the slice is small beside the rest.

    A slice is what one index of one axis leaves: a channel, a row. So is the eighth of the smallest numbers. It is lost
    if it is off by a tenth of its own size, and by far more than eager's is. Empty if none is. Outputs that are very
    large are not looked at.
    """
    if not eager.is_floating_point() or not 0 < eager.numel() <= MOST_SLICED:
        return ""
    r = reference64.detach().double()
    errors = [(t.detach().double() - r).nan_to_num_(0, 0, 0).square_() for t in (candidate, eager)]
    squares, eps = r.nan_to_num(0, 0, 0).square_(), rule_for(eager.dtype, IEEE).eps
    for axis, size in enumerate(eager.shape):
        if eager.dim() < 2 or size < 2 or eager.numel() // size < FEW:
            continue
        rest = [other for other in range(eager.dim()) if other != axis]
        c, e, own = (t.mean(rest).sqrt() for t in (*errors, squares))
        lost = (c > _OFF * own) & (c > _FAR_OFF * e + 64 * eps * own) & (own > 0)
        if bool(lost.any()):
            at = int(lost.int().argmax())
            share = float(c[at] / own[at])
            return f"index {at} of axis {axis} is off by {share:.0%} of its size: it is small beside the rest"
    if eager.numel() >= 8 * FEW:
        faint = squares.flatten().argsort()[: eager.numel() // 8]
        c, e, own = (float(t.flatten()[faint].mean().sqrt()) for t in (*errors, squares))
        if _lost(c, e, own, eps):
            return f"the smallest eighth of its numbers is off by {c / own:.0%} of its size"
    return ""


def _lost(error: float, eager: float, own: float, eps: float) -> bool:
    return own > 0 and error > _OFF * own and error > _FAR_OFF * eager + 64 * eps * own


def compare_scalars(
    results: list[tuple[Any, torch.Tensor, torch.Tensor]], policy: Policy = IEEE
) -> Comparison:
    """Compare outputs of few elements from several seeds as one vector.

    Each result is `(candidate, reference64, eager)`.
    """
    for candidate, _, eager in results:
        if (trouble := _form(candidate, eager)) is not None:
            return trouble
    c, r, e = (torch.cat([t.reshape(-1) for t in column]) for column in zip(*results, strict=True))
    return compare(c, r, e, policy)


def is_scalar(output: torch.Tensor) -> bool:
    return int(output.numel()) < FEW


def kb_compat(candidate: Any, eager: torch.Tensor, tolerance: float) -> bool:
    """KernelBench's check: the same shape, and allclose to eager.

    KernelBench raises an error if dtypes differ; this returns False.
    """
    if not isinstance(candidate, torch.Tensor) or candidate.shape != eager.shape:
        return False
    if candidate.dtype != eager.dtype:
        return False
    return close(eager, candidate.to(eager.device), tolerance, tolerance)


def judgeable(
    reference64: torch.Tensor,
    eager: torch.Tensor,
    nudged64: torch.Tensor | None = None,
    policy: Policy = IEEE,
) -> str:
    """Why an output cannot tell right from wrong for these inputs; empty if it can.

    `nudged64` is the oracle's output for inputs changed by one rounding. If that moves the output by far more
    than a candidate is allowed, a perfect kernel with one more rounding than eager would be rejected.
    """
    if not eager.is_floating_point() and not eager.is_complex():
        return ""
    if not all_finite(reference64):
        return "the reference is not finite"
    if not all_finite(eager):
        return f"eager overflows in {str(eager.dtype).removeprefix('torch.')}"
    if nudged64 is not None and eager.numel():
        rule = rule_for(eager.dtype, policy)
        found = _numbers(_real(nudged64), _real(reference64), _real(eager), rule)
        found_eps, bound = (found.relL2_eps, found.elem_eps), found.bound or []
        if any(
            value is not None and value > FAR * most for value, most in zip(found_eps, bound, strict=False)
        ):
            return f"one rounding of the inputs moves the output by {found.relL2_eps:.0f} ε, {found.elem_eps:.0f} ε"
    return ""


def mismatches(
    candidate: torch.Tensor,
    reference64: torch.Tensor,
    eager: torch.Tensor,
    found: Comparison,
    policy: Policy = IEEE,
) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yield the chunks of a comparison whose values failed: start, wrong elements, absolute errors."""
    c, r, e = candidate.detach(), reference64, eager
    if not c.is_floating_point():
        for start, (pc, pr, pe) in chunks(c, r, e):
            yield start, (pc != pr.to(pc.device)) & (pc != pe), (pc.double() - pe.double()).abs()
        return
    least, allowed = rms(r) or 1.0, float("inf")
    if found.bound is not None:
        by_element = (found.elem_eps or 0.0) > found.bound[1]
        allowed = found.bound[1 if by_element else 0] * rule_for(c.dtype, policy).eps
    for start, (pc, pr, pe) in _compared(c, r, e):
        rounded = pr.to(c.dtype).to(pc.dtype)
        kinds = _kinds(pc)
        stray = (kinds != _kinds(rounded)) & (kinds != _kinds(pe))
        keep, target = _targets(torch, pc, pr.double(), pe.double())
        off = torch.where(keep, (pc.double() - target).abs(), 0.0)
        yield start, stray | (off > allowed * target.abs().clamp(min=least)), off


# -------------------------------------------------------------------------------------------------- the parts


def _form(candidate: Any, eager: torch.Tensor) -> Comparison | None:
    """Check type, dtype, layout, device and shape; None if all agree."""
    if type(candidate) not in (torch.Tensor, torch.nn.Parameter):
        return Comparison(False, "INCORRECT_DTYPE", detail=f"a {type(candidate).__name__}, not a tensor")
    for name in ("dtype", "layout"):
        got, expected = getattr(candidate, name), getattr(eager, name)
        if got != expected:
            return Comparison(
                False, "INCORRECT_DTYPE", detail=f"{name} {got}, expected {expected}".replace("torch.", "")
            )
    if candidate.device.type != eager.device.type:
        return Comparison(False, "INCORRECT_DTYPE", detail=f"on {candidate.device}, expected {eager.device}")
    if candidate.shape != eager.shape:
        return Comparison(
            False, "INCORRECT_SHAPE", detail=f"shape {tuple(candidate.shape)}, expected {tuple(eager.shape)}"
        )
    return None


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """View complex numbers as pairs of reals; ε is the same for both."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def index_of(flat: int, shape: torch.Size) -> list[int]:
    """Convert a row-major position to an index."""
    place = []
    for size in reversed(shape):
        flat, rest = divmod(flat, size)
        place.append(rest)
    return place[::-1]


def _exact(c: torch.Tensor, r: torch.Tensor, e: torch.Tensor) -> Comparison:
    """Compare integers and booleans. If the oracle and eager differ (a tie in an argmax), either is right."""
    wrong, first = 0, None
    for start, (pc, pr, pe) in chunks(c, r, e):
        bad = (pc != pr.to(pc.device)) & (pc != pe)
        count = int(bad.sum())
        if count and first is None:
            first = start + int(bad.int().argmax())
        wrong += count
    if first is None:
        return Comparison(True)
    index = index_of(first, c.shape)
    worst = {"index": index, "expected": r[tuple(index)].item(), "got": c[tuple(index)].item()}
    return Comparison(
        False,
        "INCORRECT_NUMERICAL",
        worst=worst,
        detail=f"{wrong} of {c.numel()} elements differ (exact type)",
    )


def _kinds(tensor: torch.Tensor) -> torch.Tensor:
    """Classify elements: 0 finite, 1 NaN, 2 infinity, 3 minus infinity."""
    kinds = torch.isnan(tensor).to(torch.uint8)
    kinds[tensor == float("inf")] = 2
    kinds[tensor == float("-inf")] = 3
    return kinds


def _nonfinite(c: torch.Tensor, r: torch.Tensor, e: torch.Tensor) -> Comparison | None:
    """Check that NaN and infinity are where eager has them, or the oracle rounded to the output's type."""
    wrong, first = 0, None
    for start, (pc, pr, pe) in _compared(c, r, e):
        rounded = pr.to(c.dtype).to(pc.dtype)
        if bool((torch.isfinite(pc) & torch.isfinite(rounded)).all()):
            continue
        kinds = _kinds(pc)
        bad = (kinds != _kinds(rounded)) & (kinds != _kinds(pe))
        count = int(bad.sum())
        if count and first is None:
            first = start + int(bad.int().argmax())
        wrong += count
    if first is None:
        return None
    worst = _worst(c, r, first)
    expected, got = float(worst["expected"]), float(worst["got"])
    detail = f"{wrong} of {c.numel()} elements, first {got:g} where the reference is {expected:g}"
    return Comparison(False, "NONFINITE", worst=worst, detail=detail)


def _text(value: float) -> float | str:
    """The value, or NaN and infinity as text, which JSON lacks."""
    return value if value - value == 0 else str(value)


def _numbers(c: torch.Tensor, r: torch.Tensor, e: torch.Tensor, rule: _Rule) -> Comparison:
    """Compare the elements that are finite in the candidate, with eager where the oracle is not finite.

    On a GPU everything stays there until the end: reading a number earlier would synchronise with it. On a
    CPU the same functions are NumPy's, which cost a third on small outputs.
    """
    xp: Any = np if c.device.type == "cpu" else torch
    parts = _Parts(xp, c, r, e)
    with np.errstate(all="ignore"):
        top = xp.max(xp.stack([_largest(xp, part.exact) for part in parts]))
        scale = xp.where(top > 0, top, xp.ones_like(top))
        sums = [
            xp.stack([xp.sum(xp.square(part.target / scale)), xp.sum(part.keep, dtype=xp.float64)])
            for part in parts
        ]
        total, count = xp.sum(xp.stack(sums), 0)
        rms = top * xp.sqrt(total / count)
        least = xp.where(rms > 0, rms, xp.ones_like(rms))
        # Results below the smallest normal number may be flushed to zero. In float16 such numbers are common,
        # so there they get no slack.
        tiny = float(torch.finfo(torch.float32 if c.element_size() == 1 else c.dtype).tiny)
        slack = tiny if tiny < 1e-30 else 0.0
        found = []
        for part in parts:
            size = xp.maximum(xp.abs(part.target), least)
            c_off = (
                xp.where(part.keep, xp.clip(xp.abs(part.candidate - part.target) - slack, 0, None), 0.0)
                / size
            )
            e_off = (
                xp.where(part.keep & xp.isfinite(part.eager), xp.abs(part.eager - part.target), 0.0) / size
            )
            place = xp.argmax(c_off)
            weight = size / least
            squares = [xp.sum(xp.square(off * weight)) for off in (c_off, e_off)]
            at = xp.asarray(part.start + place, dtype=xp.float64)
            found.append(xp.stack([c_off[place], xp.max(e_off), *squares, at]))
        size_of_all, number = xp.stack([rms, count]).tolist()
        by_piece: list[list[float]] = xp.stack(found).tolist()
    if not number:
        return Comparison(True, detail="no element is finite, in the right places")
    c_most, _, _, _, at = max(by_piece, key=lambda chunk: chunk[0])
    e_most = max(chunk[1] for chunk in by_piece)
    c_rel, e_rel = ((sum(chunk[which] for chunk in by_piece) / number) ** 0.5 for which in (2, 3))
    # A reference of zeros has no norm to be relative to: the bound is then `a` times eager's own distance
    # from zero.
    b, d = (rule.b, rule.worst(number)) if size_of_all else (0.0, 0.0)
    bound = [min(rule.a * e_rel / rule.eps + b, _MOST / 2), min(rule.a * e_most / rule.eps + d, _MOST / 2)]
    rel_eps, elem_eps = min(c_rel / rule.eps, _MOST), min(c_most / rule.eps, _MOST)
    ok = rel_eps <= bound[0] and elem_eps <= bound[1]
    numbers = f"relL2 {rel_eps:.3g} ε (bound {bound[0]:.3g}), elem {elem_eps:.3g} ε (bound {bound[1]:.3g})"
    return Comparison(
        ok,
        None if ok else "INCORRECT_NUMERICAL",
        rel_eps,
        elem_eps,
        bound,
        {} if ok else _worst(c, r, int(at)),
        numbers if size_of_all else f"the reference is zero: {numbers}, absolute",
    )


def _worst(c: torch.Tensor, r: torch.Tensor, at: int) -> dict[str, Any]:
    index = index_of(at, c.shape)
    return {
        "index": index,
        "expected": _text(r[tuple(index)].item()),
        "got": _text(plain(c[tuple(index)]).item()),
    }


def _compared(
    c: torch.Tensor, r: torch.Tensor, e: torch.Tensor
) -> Iterator[tuple[int, tuple[torch.Tensor, ...]]]:
    for start, (pc, pr, pe) in chunks(c, r, e):
        yield start, (plain(pc), pr, plain(pe))


@dataclass
class _Part:
    """A chunk of the compared tensors in float64, as arrays: NumPy's or torch's."""

    start: int
    candidate: Any
    exact: Any
    eager: Any
    keep: Any
    target: Any


class _Parts:
    """The chunks of a comparison, which is made in several passes. A single one is converted once."""

    def __init__(self, xp: Any, *tensors: torch.Tensor) -> None:
        self._xp, self._tensors = xp, tensors
        small = tensors[0].numel() <= chunk_size(tensors[0])
        self._only = list(self._each()) if small else None

    def __iter__(self) -> Iterator[_Part]:
        return self._each() if self._only is None else iter(self._only)

    def _each(self) -> Iterator[_Part]:
        for start, chunk in chunks(*self._tensors):
            wide = [part.detach().double() for part in chunk]
            c, r, e = (part.numpy() if self._xp is np else part for part in wide)
            yield _Part(start, c, r, e, *_targets(self._xp, c, r, e))


def _largest(xp: Any, numbers: Any) -> Any:
    """The largest absolute value of those that are finite."""
    return xp.max(xp.where(xp.isfinite(numbers), xp.abs(numbers), 0.0))


def _targets(xp: Any, pc: Any, pr: Any, pe: Any) -> tuple[Any, Any]:
    """A mask of the elements to compare, and the values to compare them with."""
    keep = xp.isfinite(pc)
    target = xp.where(xp.isfinite(pr), pr, pe)
    return keep, xp.where(keep & xp.isfinite(target), target, 0.0)
