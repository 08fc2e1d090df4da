"""Lines for a repair turn on where an output is wrong, from a check's `differs`.

The record may come from an untrusted file. Anything in a form that `judge.differences` does not produce is
left out, and text is cleaned.
"""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.score.quote import one_line
from kernelmill.evaluate.verdict import SLICE

_MOST_INPUTS = 6
_MOST_PHRASES = 3


def differs_lines(differs: dict[str, Any], *, values: bool) -> list[str]:
    """What was tried, how much of it is wrong, and where. With `values`, also a few values."""
    lines = [line for line in (_tried(differs), _share(differs, values=values), _where(differs)) if line]
    return [*lines, *(_neighbours(differs) if values else [])]


def _tried(differs: dict[str, Any]) -> str:
    inputs, output = differs.get("inputs"), differs.get("output")
    if not isinstance(inputs, list) or not isinstance(output, str):
        return ""
    given = ", ".join(one_line(str(one), 40) for one in inputs[:_MOST_INPUTS]) or "none"
    return f"tried with inputs {given}; the output asked for is {one_line(output, 40)}"


def _share(differs: dict[str, Any], *, values: bool) -> str:
    wrong, total = differs.get("wrong"), differs.get("of")
    if type(wrong) is not int or type(total) is not int or not 0 < wrong <= total:
        return ""
    share = f"{wrong:,} of {total:,} elements are wrong ({wrong / total:.3g} of all)"
    most = differs.get("max_abs")
    return f"{share}, largest absolute error {number(most)}" if values and type(most) is float else share


def _where(differs: dict[str, Any]) -> str:
    where = differs.get("where")
    if not isinstance(where, list) or not where:
        return ""
    return f"wrong: {'; and '.join(one_line(str(phrase), 110) for phrase in where[:_MOST_PHRASES])}"


def _neighbours(differs: dict[str, Any]) -> list[str]:
    at, sides = differs.get("at"), [differs.get("expected"), differs.get("got")]
    if not isinstance(at, list) or len(at) > 8 or not all(type(i) is int for i in at):
        return []
    told = []
    for side in sides:
        if not isinstance(side, list) or any(isinstance(value, list | dict) for value in side):
            return []
        told.append(" ".join(number(value) for value in side[:SLICE]))
    return [f"from {at} on, along the last axis: expected {told[0]}; got {told[1]}"]


def number(value: Any) -> str:
    if value is None:
        return "a number that is not finite"
    return f"{value:.6g}" if isinstance(value, float) else one_line(str(value), 24)
