"""Who computed a result: torch's work in a candidate's call, weighed against the reference's own."""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.work import Work

_HEAVY_KINDS = frozenset({"matmul", "convolution", "attention", "recurrent"})
_NOT_WORK = frozenset({"copy", "view", "creation"})
_COVERED = 0.9
_HOST_SHARE, HOST_LEAST = 0.25, 32


def torch_share(said: dict[str, Any], reference: Work) -> float:
    """The part of the reference's work that torch did for the candidate."""
    total = sum(_work(reference.kinds).values())
    if not total:
        return 0.0
    return min(1.0, sum(_work(said["kinds"], like=reference.kinds).values()) / total)


def who_computed(said: dict[str, Any], reference: Work, elements: int) -> str:
    """Why the kernels are only for show; empty where they are not."""
    if said["host"] >= max(HOST_LEAST, _HOST_SHARE * elements):
        return f"{said['host']} elements were read by the host"
    needed = _groups(_work(reference.kinds))
    if not needed:
        return ""
    given = _groups(_work(said["kinds"], like=reference.kinds))
    if said["copy_of"] and sum(given.values()) > _COVERED * sum(needed.values()):
        return f"the output is the result of {said['copy_of']}, copied"
    if all(given.get(group, 0.0) >= _COVERED * seconds for group, seconds in needed.items()):
        return "torch did all of the work"
    return ""


def _work(kinds: dict[str, float], like: dict[str, float] | None = None) -> dict[str, float]:
    """Without what is free. For a reference that does nothing else, copies are its work."""
    real = {kind: seconds for kind, seconds in (like or kinds).items() if kind not in _NOT_WORK}
    free = _NOT_WORK if real else _NOT_WORK - {"copy"}
    return {kind: float(seconds) for kind, seconds in kinds.items() if kind not in free}


def _groups(kinds: dict[str, float]) -> dict[str, float]:
    groups: dict[str, float] = {}
    for kind, seconds in kinds.items():
        group = "heavy" if kind in _HEAVY_KINDS else "light"
        groups[group] = groups.get(group, 0.0) + seconds
    return groups
