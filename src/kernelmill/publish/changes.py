"""Compute what publishing would change: rows by split, and columns.

Rows are matched by their identifying columns: `example_id`, `uuid`, `instance_id`, `level`, `problem_id`, and
the names of the problem and the module, as far as a row has them. Rows with the same identifiers are matched
in order. A row without identifiers is matched by its content, so it is never changed, only added or removed.
Values are compared, not bytes: the order of columns is ignored, and a null equals a missing key. Holds about
200 bytes per row.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from kernelmill.base.rows import Row, RowReader
from kernelmill.store import Source
from kernelmill.store.source import DataFile

_NAMES = (
    "example_id", "uuid", "instance_id", "level", "problem_id", "name", "module_name", "entry_point", "problem_name",
    "problem_level",
)  # fmt: skip


class SplitChange(NamedTuple):
    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0

    def __str__(self) -> str:
        parts = [
            f"{number:,} {word}" for word, number in zip(self._fields[2:], self[2:], strict=True) if number
        ]
        return f"{self.before:,} -> {self.after:,} rows: {', '.join(parts) or 'none'}"


class Changes(NamedTuple):
    splits: dict[str, SplitChange]
    moved: int
    """Rows removed from one split and added to another."""
    columns: list[str]


def compare(
    old: Mapping[str, list[DataFile]],
    new: Mapping[str, list[DataFile]],
    old_columns: Mapping[str, str] | None,
    new_columns: Mapping[str, str],
) -> Changes:
    splits, gone, came = {}, set[int](), set[int]()
    for name in [*new, *(name for name in old if name not in new)]:
        before = _fingerprints(_rows(name, old.get(name, [])))
        after = _fingerprints(_rows(name, new.get(name, [])))
        shared = before.keys() & after.keys()
        unchanged = sum(before[key] == after[key] for key in shared)
        removed, added = before.keys() - after.keys(), after.keys() - before.keys()
        gone |= removed
        came |= added
        splits[name] = SplitChange(
            len(before), len(after), len(added), len(removed), len(shared) - unchanged, unchanged
        )
    return Changes(splits, len(gone & came), _columns(old_columns, new_columns))


def _rows(name: str, files: list[DataFile]) -> Iterable[Row]:
    return Source(name, files, {}).rows()


def _fingerprints(rows: Iterable[Row]) -> dict[int, int]:
    """Map each row's identity hash to its content hash."""
    read = RowReader(dict[str, Any])
    seen: Counter[int] = Counter()
    found: dict[int, int] = {}
    for row in rows:
        values = _without_nulls(read(row))
        content = _number(values)
        info = values.get("info")
        names = [values.get(name) for name in _NAMES] + [
            info.get("module_name") if isinstance(info, dict) else None
        ]
        key = content if all(name is None for name in names) else _number(names)
        seen[key] += 1
        found[_number([key, seen[key]])] = content
    return found


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _number(value: Any) -> int:
    text = msgspec.json.encode(value, order="sorted")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest())


def _columns(old: Mapping[str, str] | None, new: Mapping[str, str]) -> list[str]:
    if old is None:
        return []
    lines = [f"column {name} is new ({kind})" for name, kind in new.items() if name not in old]
    lines += [f"column {name} goes ({kind})" for name, kind in old.items() if name not in new]
    lines += [
        f"column {name}: {old[name]} becomes {kind}"
        for name, kind in new.items()
        if old.get(name, kind) != kind
    ]
    kept_old, kept_new = [n for n in old if n in new], [n for n in new if n in old]
    return lines + (["the order of the columns changes"] if kept_old != kept_new else [])
