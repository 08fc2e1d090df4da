"""`kernelmill problems list`, `show` and `stats`: an imported set for people, or as JSON."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from kernelmill.base.bar_chart import terminal_bars
from kernelmill.base.terminal import count, plain
from kernelmill.base.whole_file import encoded
from kernelmill.errors import ConfigError
from kernelmill.problems.facts import TensorFact
from kernelmill.problems.sets.folder import by_level, code_of, counts, level_lines, read_set
from kernelmill.problems.sets.problem import Checked


def list_set(folder: Path, levels: list[int] | None, as_json: bool) -> list[str]:
    record = read_set(folder)
    chosen = [one for one in record.problems if levels is None or one.level in levels]
    if as_json:
        return [msgspec.json.encode(one).decode() for one in chosen]
    width = max((len(_label(one)) for one in chosen), default=0)
    lines = [plain(f"{_label(one):<{width}}  {_state(one):<9}  {_sizes(one)}").rstrip() for one in chosen]
    return [*lines, f"{len(chosen):,} problems of {record.name}"]


def show_problem(folder: Path, name: str, as_json: bool) -> list[str]:
    """Show one problem, by `level1/19`, `level1/19_ReLU` or its name."""
    record = read_set(folder)
    found = [one for one in record.problems if name in _names(one)]
    if len(found) != 1:
        which = ", ".join(_label(one) for one in found[:5])
        raise ConfigError(
            f"{name}: " + (f"several are called so: {which}" if found else f"no such problem in {folder}")
        )
    one = found[0]
    if as_json:
        return [encoded(one).decode().rstrip("\n")]
    lines = [("problem", _label(one)), ("file", str(folder / one.file))]
    if one.full is not None:
        lines += [("input", _tensor(tensor)) for tensor in one.full.inputs]
        lines += [("output", _tensor(tensor)) for tensor in one.full.outputs]
        kinds = ", ".join(f"{kind} {number}" for kind, number in one.full.kinds.items())
        lines += [
            ("parameters", count(one.full.parameters)),
            ("flops", count(one.full.flops)),
            ("operations", kinds),
        ]
    else:
        lines.append(("full size", f"did not run: {one.full_error}"))
    if one.random_weights:
        lines.append(("weights", "random: its model is built from its sizes"))
    lines.append(("admitted", "yes" if one.admitted else f"no: {'; '.join(one.reasons)}"))
    text = [plain(f"{label:<12}{value}") for label, value in lines]
    return [*text, "", plain(code_of(folder, one)).rstrip("\n")]


def stats_of(folder: Path) -> dict[str, Any]:
    """Count problems by level, kind of operation, dtype and size."""
    record = read_set(folder)
    fulls = [one.full for one in record.problems if one.full is not None]
    dtypes = Counter(dtype for full in fulls for dtype in {tensor.dtype for tensor in full.inputs})
    kinds = Counter(kind for full in fulls for kind in full.kinds)
    sizes = Counter(_magnitude(sum(math.prod(tensor.shape) for tensor in full.inputs)) for full in fulls)
    names = ("problems", "full_size", "small", "admitted")
    reasons = Counter(
        reason.partition(":")[0].partition("(")[0].strip()
        for one in record.problems
        for reason in one.reasons
    )
    return {
        "name": record.name,
        "benchmark": record.benchmark,
        "levels": {
            str(level): dict(zip(names, counts(mine), strict=True))
            for level, mine in by_level(record).items()
        },
        "all": dict(zip(names, counts(record.problems), strict=True)),
        "random_weights": sum(one.random_weights for one in record.problems),
        "operators": dict(kinds.most_common()),
        "dtypes": dict(dtypes.most_common()),
        "sizes": {label: sizes[label] for label in _MAGNITUDES if sizes[label]},
        "not_admitted": dict(reasons.most_common()),
        "rejected": len(record.rejected),
    }


def stats_lines(found: dict[str, Any]) -> list[str]:
    lines = [f"{found['name']}{', a benchmark' if found['benchmark'] else ''}", ""]
    levels = {**found["levels"], "all": found["all"]}
    lines += level_lines({level: mine.values() for level, mine in levels.items()})
    for title, key in (
        ("problems with such operations", "operators"),
        ("problems with inputs of this dtype", "dtypes"),
        ("problems by numbers in their inputs", "sizes"),
        ("why problems are not admitted", "not_admitted"),
    ):
        if found[key]:
            lines += ["", title, *terminal_bars(list(found[key].items()))]
    if found["random_weights"]:
        lines += ["", f"{found['random_weights']} problems have models with random weights"]
    return lines


_MAGNITUDES = ("under 10k", "10k to 1M", "1M to 100M", "100M and more")


def _magnitude(elements: int) -> str:
    return _MAGNITUDES[sum(elements >= bound for bound in (10**4, 10**6, 10**8))]


def _label(one: Checked) -> str:
    return f"level{one.level}/{one.problem_id}_{one.name}"


def _names(one: Checked) -> tuple[str, ...]:
    return _label(one), f"level{one.level}/{one.problem_id}", one.name, one.file


def _state(one: Checked) -> str:
    return "admitted" if one.admitted else "flagged"


def _sizes(one: Checked) -> str:
    return (
        ", ".join(_tensor(tensor) for tensor in one.full.inputs[:4])
        if one.full
        else f"full size: {one.full_error}"
    )


def _tensor(tensor: TensorFact) -> str:
    return f"{tensor.name} {tuple(tensor.shape)} {tensor.dtype}"
