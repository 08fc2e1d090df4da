"""Train and validation, so that validation measures something.

Rows are split by group: all rows whose module is the same code or nearly the same, whatever it is called. A shared name makes no group.
A group's side is drawn from the code of one of its modules and the seed. So it depends on content alone, not on the order of rows, how
many there are of each, or what else is in the set. A set that grows keeps its sides: only a group that gains a near duplicate with
other code may be drawn anew, about one in eleven of those with one module before, fewer with more.

A set that was made from a dataset on the Hub that is split already keeps its rows on their sides (`source`).

A set that was made from another one by dropping or rewriting rows (`unique`, `strip`, `decontaminate`: their manifests say so) is
split by the groups of that other one, so that all of them agree.

`rows` is the old way: single rows by chance, the same rows as `datasets`' `train_test_split(test_size=0.1, seed=42)` takes.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any, Literal

from kernelmill.base.extras import require
from kernelmill.base.rows import ModuleReader
from kernelmill.errors import BadRow, ConfigError
from kernelmill.problems.modules import Groups, Modules
from kernelmill.store.manifest import made_from, manifest_of, part
from kernelmill.store.source import Source, open_source

How = Literal["groups", "rows", "none", "source"]
TRAIN, VALIDATION = "train", "validation"
CLOSE = 0.7
"""A validation module with a train module that is so much alike is named in the leakage report."""
KEEPS_MODULES = ("unique", "strip", "decontaminate")
"""Stages whose rows are split as the rows they were made from."""


class Split:
    """On which side each row is, and what there is to say about it."""

    def __init__(
        self, validation: bytearray | None, policy: dict[str, Any], leakage: dict[str, Any] | None = None
    ) -> None:
        self._validation = validation
        self.names = [TRAIN] if validation is None else [TRAIN, VALIDATION]
        self.policy = policy
        self.leakage = leakage or {}

    def side(self, index: int) -> str:
        """The side of the row with this index in the source."""
        return VALIDATION if self._validation is not None and self._validation[index] else TRAIN


def plan_split(
    source: Source, how: How, share: float = 0.1, seed: int = 42, similarity: float = 0.85
) -> Split:
    """Read the source once and say where each of its rows goes. Raises `BadRow` for a row without a module."""
    if how == "none":
        return Split(None, {"split": "none"})
    if how == "source":
        return _as_source(source)
    policy: dict[str, Any] = {"split": how, "validation_share": share, "seed": seed}
    if how == "rows":
        return Split(_by_rows(source, share, seed), policy)
    chosen_from = ancestors(source)
    policy |= {"similarity": similarity, "groups_from": [Path(other.name).name for other in chosen_from]}
    with Modules() as modules:
        return _by_groups(source, chosen_from, modules, policy)


def source_splits(source: Source) -> dict[str, int] | None:
    """How many rows are from each split of the Hub dataset that a file was made from, in the order of the file; None where it was
    made from something else, or was changed since."""
    manifest = manifest_of(source.files[0].path) if source.origin.get("kind") == "file" else None
    if manifest is None or manifest["stage"] not in KEEPS_MODULES:
        return None
    splits = part(manifest, "splits")
    if set(splits) != {TRAIN, VALIDATION} or sum(splits.values()) != sum(1 for _ in source.rows()):
        return None
    return splits


def _as_source(source: Source) -> Split:
    splits = source_splits(source)
    if splits is None:
        raise ConfigError(
            f"--split-by source: {source.name} was not made from a Hub dataset with train and validation: leave it out"
        )
    sides = bytearray(b"".join(bytes([name == VALIDATION]) * number for name, number in splits.items()))
    manifest = manifest_of(source.files[0].path)
    return Split(sides, {"split": "source", "of": part(manifest or {}, "source").get("repo")})


def _by_rows(source: Source, share: float, seed: int) -> bytearray:
    require("--split-by rows, which draws rows as datasets does,", "numpy", extra="hub")
    import numpy

    count = sum(1 for _ in source.rows())
    sides = bytearray(count)
    # As in datasets' train_test_split: the first of a permutation, rounded up.
    for index in numpy.random.default_rng(seed).permutation(count)[: ceil(share * count)]:
        sides[index] = 1
    return sides


class _Rows:
    """The modules of the rows of one source, and what to call them."""

    def __init__(self, source: Source, modules: Modules, skip_bad: bool) -> None:
        read = ModuleReader()
        self.texts = array("q")
        self.shown: dict[int, str] = {}
        """For each text, the first row that has it."""
        for row in source.rows():
            try:
                name, code = read(row)
            except BadRow:
                if not skip_bad:
                    raise
                continue
            text = modules.add(code)
            self.texts.append(text)
            if text not in self.shown:
                self.shown[text] = f"{Path(row.where).name} ({name})"


def _by_groups(source: Source, chosen_from: list[Source], modules: Modules, policy: dict[str, Any]) -> Split:
    rows = _Rows(source, modules, skip_bad=False)
    for ancestor in chosen_from:
        # A row that the stage between could not read is in no set that we split.
        _Rows(ancestor, modules, skip_bad=True)
    modules.finish()
    of_row = [modules.module_of(text) for text in rows.texts]
    groups = modules.near(policy["similarity"])
    side = _sides(groups, modules.keys, policy)
    close_by = min(CLOSE, policy["similarity"])
    # A second, wider look at all that the rows were chosen from: it may find a pair that the first one missed.
    while True:
        nearest = modules.neighbours(*_apart(side, range(len(side))), close_by)
        missed = [(one, other) for one, (other, alike) in nearest.items() if alike >= policy["similarity"]]
        if not missed:
            break
        for one, other in missed:
            groups.join(one, other)
        side = _sides(groups, modules.keys, policy)
    present = sorted(set(of_row))
    held_out, taught = _apart(side, present)
    if len(present) < len(side):
        nearest = modules.neighbours(held_out, taught, close_by)
    shown = {modules.module_of(text): name for text, name in reversed(rows.shown.items())}
    close = [
        {"validation": shown[one], "train": shown[other], "alike": round(alike, 4)}
        for one, (other, alike) in sorted(nearest.items(), key=lambda item: (-item[1][1], shown[item[0]]))
    ]
    sides: dict[int, set[int]] = {}
    for module in of_row:
        sides.setdefault(groups.root(module), set()).add(side[module])
    validation = bytearray(side[module] for module in of_row)
    leakage = {
        "modules": len(present),
        "groups": len(sides),
        "validation_groups": sum(1 in found for found in sides.values()),
        "validation_rows": sum(validation),
        "groups_on_both_sides": sum(len(found) > 1 for found in sides.values()),
        "close": CLOSE,
        "validation_modules": len(held_out),
        "validation_modules_close_to_train": len(close),
        "nearest": close,
    }
    return Split(validation, policy, leakage)


def _apart(side: list[int], modules: Iterable[int]) -> tuple[list[int], list[int]]:
    """Validation and train."""
    held_out: list[int] = []
    taught: list[int] = []
    for module in modules:
        (held_out if side[module] else taught).append(module)
    return held_out, taught


def _sides(groups: Groups, keys: list[bytes], policy: dict[str, Any]) -> list[int]:
    """The side of each module, 1 for validation: that of the module of its group which the seed puts first."""
    first: dict[int, bytes] = {}
    for module, key in enumerate(keys):
        drawn = hashlib.blake2b(b"%d:%s" % (policy["seed"], key), digest_size=16).digest()
        root = groups.root(module)
        first[root] = min(drawn, first.get(root, drawn))
    # Half of what was drawn said who is first; the other half knows nothing of that.
    limit = policy["validation_share"] * 2**64
    return [int(int.from_bytes(first[groups.root(module)][8:], "big") < limit) for module in range(len(keys))]


def ancestors(source: Source) -> list[Source]:
    """The files that this one was made from by dropping or rewriting rows, nearest first."""
    found: list[Source] = []
    file = source.files[0].path if source.origin.get("kind") == "file" else None
    seen = set[Path]()
    while file is not None and file.resolve() not in seen:
        seen.add(file.resolve())
        manifest = manifest_of(file)
        if manifest is None or manifest["stage"] not in KEEPS_MODULES:
            break
        file = made_from(manifest, file)
        if file is not None:
            found.append(open_source(str(file)))
    return found
