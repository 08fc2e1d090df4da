"""Decide who computed a result: compare torch's work in a candidate's call with the reference's own work."""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.judge.torch_work import TorchWork

_HEAVY_KINDS = frozenset({"matmul", "convolution", "attention", "recurrent"})
_NOT_WORK = frozenset({"copy", "view", "creation"})
_COVERED = 0.9
FULL_SIZE = 1 << 22
"""Elements of the largest tensor in a task of the size that kernels are written for."""
_HOST_SHARE, HOST_LEAST = 0.25, 32


def torch_share(said: dict[str, Any], reference: TorchWork, largest: int = FULL_SIZE) -> float:
    """The share of the reference's work that torch did for the candidate, extrapolated to full size.

    `largest` is the number of elements of the largest tensor in the task as it was run. In small tasks,
    products take no longer than the operations around them. At full size they take nearly all of the time.
    """
    needed = _groups(_work(reference.kinds))
    given = _given(said, reference, needed)
    total = sum(needed.values())
    if not total:
        return 0.0
    heavy = needed.get("heavy", 0.0)
    if not heavy:
        return min(1.0, sum(given.values()) / total)
    times = max(1.0, FULL_SIZE / max(largest, 1))
    # The data of products grows linearly with the size and their operations with size**1.5; the rest grows
    # linearly.
    full = max(heavy * times, reference.arithmetic * times**1.5)
    done = full * min(1.0, given.get("heavy", 0.0) / heavy) + given.get("light", 0.0) * times
    return float(min(1.0, done / (full + needed.get("light", 0.0) * times)))


def who_computed(said: dict[str, Any], reference: TorchWork, elements: int, largest: int = FULL_SIZE) -> str:
    """Why the candidate's kernels do not compute the result; empty if they do.

    `elements` is the size of the largest input, `largest` that of the largest tensor of all.
    """
    if said["host"] >= max(HOST_LEAST, _HOST_SHARE * elements):
        return f"{said['host']} elements were read by the host"
    needed = _groups(_work(reference.kinds))
    if not needed:
        return ""
    if said["copy_of"]:
        return f"the output is the result of {said['copy_of']}, copied"
    given = _given(said, reference, needed)
    if all(given.get(group, 0.0) >= _COVERED * seconds for group, seconds in needed.items()):
        return "torch did all of the work"
    return ""


def _given(said: dict[str, Any], reference: TorchWork, needed: dict[str, float]) -> dict[str, float]:
    """The work that torch did for the candidate, by group. What has no price may be all of it.

    Light work can be done by heavy operations: a softmax by attention, a running sum by a product.
    """
    given = _groups(_work(said["kinds"], like=reference.kinds))
    unpriced = said["kinds"].get("unpriced")
    if "heavy" not in needed:
        return {"light": max(sum(given.values()), needed.get("light", 0.0) if unpriced else 0.0)}
    return given | ({"heavy": max(given.get("heavy", 0.0), needed["heavy"])} if unpriced else {})


def _work(kinds: dict[str, float], like: dict[str, float] | None = None) -> dict[str, float]:
    """The seconds by kind, without what is free. Copies count if the reference does nothing else."""
    real = {kind: seconds for kind, seconds in (like or kinds).items() if kind not in _NOT_WORK}
    free = _NOT_WORK if real else _NOT_WORK - {"copy"}
    return {kind: float(seconds) for kind, seconds in kinds.items() if kind not in free}


def _groups(kinds: dict[str, float]) -> dict[str, float]:
    groups: dict[str, float] = {}
    for kind, seconds in kinds.items():
        group = "heavy" if kind in _HEAVY_KINDS else "light"
        groups[group] = groups.get(group, 0.0) + seconds
    return groups
