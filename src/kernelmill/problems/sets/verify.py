"""Verification of a merged file: `kernelmill problems verify`.

Every row of the level files is checked against the format, its file's level, and all other rows (duplicate
ids or references). Every line of the merged file is compared with the level files, byte for byte: nothing
lost, added, repeated or altered. Each fault names its line. The order of the merged file is a fault only if
one was asked for; otherwise it is reported. References are not run: `problems import` does that.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.errors import BadRow
from kernelmill.problems.sets.levels import (
    COUNTS,
    EXPORT_RECORD,
    NO_END,
    Line,
    export_record,
    level_file,
    read_lines,
)
from kernelmill.problems.sets.merge import SEED, Order, Placed, merged
from kernelmill.problems.sets.rl_rows import COLUMNS, decoded, faults_of


class Fault(NamedTuple):
    where: str
    """`file:line`, or the file if the fault concerns all of it."""
    text: str


class Verified(NamedTuple):
    faults: list[Fault]
    notes: list[str]
    rows: list[Placed]
    """The readable rows of the merged file."""


class VerifyRequest(NamedTuple):
    """What the merged file is expected to be."""

    folder: Path
    merged: Path
    levels: Sequence[int]
    weights: Mapping[int, float] | None = None
    order: Order | None = None
    seed: int | None = None
    any_counts: bool = False


def verify(wanted: VerifyRequest) -> Verified:
    faults: list[Fault] = []
    notes: list[str] = []
    placed = _level_rows(wanted, faults, notes)
    expected = (
        merged(placed, "level", SEED if wanted.seed is None else wanted.seed, wanted.weights)
        if placed
        else []
    )
    lines = read_lines(wanted.merged)
    rows = _compare(lines, expected, faults)
    raws = [line.raw for line in lines]
    _judge_order(wanted, raws, placed, faults, notes)
    return Verified(faults, notes, rows)


def _level_rows(wanted: VerifyRequest, faults: list[Fault], notes: list[str]) -> list[Placed]:
    """Return the readable rows of the level files, and collect every fault of these files."""
    placed: list[Placed] = []
    ids: dict[str, str] = {}
    labels: dict[str, str] = {}
    record = export_record(wanted.folder)
    for level in wanted.levels:
        file = level_file(wanted.folder, level)
        lines = read_lines(file)
        for line in lines:
            # A last line without a line end is complete if it parses, and merging adds the end.
            if line.odd == NO_END:
                notes.append(f"{line.where}: {line.odd}")
            elif line.odd:
                faults.append(Fault(line.where, line.odd))
            row = _read(line, faults)
            if row is None:
                continue
            placed.append(Placed(level, line, row))
            extra = row.get("extra_info")
            said = extra.get("level") if isinstance(extra, dict) else None
            if isinstance(said, int) and said != level:
                faults.append(Fault(line.where, f"extra_info.level is {said} in the file of level {level}"))
            for kind, key, seen in (
                ("instance_id", row.get("instance_id"), ids),
                ("label", row.get("label"), labels),
            ):
                if isinstance(key, str) and (first := seen.setdefault(key, line.where)) != line.where:
                    shown = (
                        f"the instance_id {key!r}" if kind == "instance_id" else "the same reference (label)"
                    )
                    faults.append(Fault(line.where, f"{shown} stands at {first} too"))
        if record is not None and level in record.levels:
            was, now = record.levels[level], hashlib.sha256(file.read_bytes()).hexdigest()
            if now != was.sha256:
                text = f"not as it was exported ({was.rows} rows, {EXPORT_RECORD} has its hash): export again, or remove that file"
                faults.append(Fault(str(file), text))
        elif not wanted.any_counts and len(lines) != COUNTS.get(level, len(lines)):
            text = f"{len(lines)} rows, KernelBench has {COUNTS[level]} in level {level} (--any-counts: another set)"
            faults.append(Fault(str(file), text))
    return placed


def _read(line: Line, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        row = decoded(line.raw, line.where)
    except BadRow as bad:
        faults.append(Fault(line.where, bad.reason))
        return None
    faults += [Fault(line.where, fault) for fault in faults_of(row)]
    return row


def _compare(lines: Sequence[Line], expected: Sequence[Placed], faults: list[Fault]) -> list[Placed]:
    """Compare the merged lines with those of the level files."""
    left = Counter(one.line.raw for one in expected)
    by_raw = {one.line.raw: one for one in expected}
    by_id: defaultdict[Any, list[Placed]] = defaultdict(list)
    for one in expected:
        by_id[_key(one.row)].append(one)
    first: dict[bytes, str] = {}
    rows: list[Placed] = []
    altered: Counter[bytes] = Counter()
    for line in lines:
        if line.odd:
            faults.append(Fault(line.where, line.odd))
        source = by_raw.get(line.raw)
        if source is not None:
            rows.append(source._replace(line=line))
            if left[line.raw]:
                left[line.raw] -= 1
            else:
                text = f"it stands at {first[line.raw]} already, and at {source.line.where} only once"
                faults.append(Fault(line.where, text))
            first.setdefault(line.raw, line.where)
            continue
        row = _read(line, faults)
        if row is None:
            faults.append(Fault(line.where, "not a line of the level files"))
            continue
        known = by_id.get(_key(row), [])
        if known:
            faults.append(
                Fault(
                    line.where, f"it differs from {known[0].line.where} in {_difference(known[0], line, row)}"
                )
            )
            altered[known[0].line.raw] += 1
        else:
            faults.append(Fault(line.where, "it is in none of the level files"))
        level = known[0].level if known else 0
        rows.append(Placed(level, line, row))
    for one in expected:
        if left[one.line.raw]:
            left[one.line.raw] -= 1
            if altered[one.line.raw]:
                altered[one.line.raw] -= 1  # present but altered, which is already reported
            else:
                faults.append(Fault(one.line.where, "it is lost: the merged file has no such line"))
    return rows


def _key(row: dict[str, Any]) -> str:
    """Return the id by which a changed line is matched; empty without one."""
    found = row.get("instance_id")
    return found if isinstance(found, str) else ""


def _difference(source: Placed, line: Line, row: dict[str, Any]) -> str:
    names = [
        name for name in dict.fromkeys((*COLUMNS, *source.row, *row)) if source.row.get(name) != row.get(name)
    ]
    if names:
        return ", ".join(names)
    same_text = "its keys stand in another order" if list(source.row) != list(row) else "its bytes are others"
    return f"how it is written ({same_text})"


def _judge_order(
    wanted: VerifyRequest, raws: list[bytes], placed: list[Placed], faults: list[Fault], notes: list[str]
) -> None:
    if not placed or faults:
        return

    def is_order(order: Order, seed: int) -> bool:
        return [one.line.raw for one in merged(placed, order, seed, wanted.weights)] == raws

    seed = SEED if wanted.seed is None else wanted.seed
    if wanted.order is not None or wanted.seed is not None:
        order = wanted.order or "shuffle"
        if not is_order(order, seed):
            text = f"its rows are not in the order of --order {order}" + (
                f" --seed {seed}" if order == "shuffle" else ""
            )
            faults.append(Fault(str(wanted.merged), text))
        return
    if is_order("shuffle", seed):
        notes.append(f"order: shuffled with seed {seed}, byte for byte what merge writes")
    elif is_order("level", seed):
        notes.append("order: level by level, as merge --no-shuffle writes it")
    else:
        notes.append(f"order: neither that of seed {seed} nor level by level")
