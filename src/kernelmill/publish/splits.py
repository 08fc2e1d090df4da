"""Split rows into train and validation without leakage between the two.

`groups`: a group is all rows whose modules have the same or nearly the same code, whatever their names. A
shared name alone makes no group. A group's side is drawn from the code of one of its modules and the seed. It
therefore depends on content only, not on the order of rows, their number, or the rest of the set. A set that
grows keeps its sides. Only a group that gains a near duplicate with other code may change sides: about one in
eleven of the groups that had one module before, fewer of larger ones.

A set made from another one by dropping or rewriting rows (`unique`, `strip`, `decontaminate`, according to
their manifests) is split by the groups of that other set, so that all of them agree.

`source`: a set made from a Hub dataset that is already split keeps each row on its side.

`rows`: random single rows, the same rows as `train_test_split(test_size=0.1, seed=42)` of `datasets` selects.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from math import ceil
from pathlib import Path
from typing import Any, Literal

from kernelmill.base.missing import require
from kernelmill.base.rows import ModuleCodeReader
from kernelmill.errors import BadRow, ConfigError
from kernelmill.problems.similarity.modules import Groups, Modules
from kernelmill.store.manifest import made_from, manifest_of, part
from kernelmill.store.source import Source, open_source

How = Literal["groups", "rows", "none", "source"]
TRAIN, VALIDATION = "train", "validation"
CLOSE = 0.7
"""Similarity to a train module from which a validation module is listed in the leakage report."""
KEEPS_MODULES = ("unique", "strip", "decontaminate")
"""Stages whose rows are split like the rows they were made from."""


class Split:
    """The side of each row, the split policy and the leakage report."""

    def __init__(
        self, validation: bytearray | None, policy: dict[str, Any], leakage: dict[str, Any] | None = None
    ) -> None:
        self._validation = validation
        self.names = [TRAIN] if validation is None else [TRAIN, VALIDATION]
        self.policy = policy
        self.leakage = leakage or {}

    def split_of(self, index: int) -> str:
        """The side of the row with this index in the source."""
        return VALIDATION if self._validation is not None and self._validation[index] else TRAIN


def plan_split(
    source: Source, how: How, share: float = 0.1, seed: int = 42, similarity: float = 0.85
) -> Split:
    """Read the source once and assign each row to a side. Raises `BadRow` for a row without a module."""
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
    """Number of rows from each split of the Hub dataset that a file was made from, in file order.

    None where the file was made from something else or its row count does not match its manifest.
    """
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
    # As in datasets' train_test_split: the first rows of a permutation, with the number rounded up.
    for index in numpy.random.default_rng(seed).permutation(count)[: ceil(share * count)]:
        sides[index] = 1
    return sides


class _Rows:
    """The modules of the rows of one source, and their display names."""

    def __init__(self, source: Source, modules: Modules, skip_bad: bool) -> None:
        read = ModuleCodeReader()
        self.texts = array("q")
        self.shown: dict[int, str] = {}
        """For each text, the first row that has it, for display."""
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
        # A row that the stage in between could not read is not in the set being split.
        _Rows(ancestor, modules, skip_bad=True)
    modules.finish()
    of_row = [modules.module_of(text) for text in rows.texts]
    groups = modules.near(policy["similarity"])
    side = _assign(groups, modules.keys, policy)
    close_by = min(CLOSE, policy["similarity"])
    # Search again with a lower threshold, over all ancestors: it may find pairs that the first one missed.
    while True:
        nearest = modules.neighbours(*_apart(side, range(len(side))), close_by)
        missed = [(one, other) for one, (other, alike) in nearest.items() if alike >= policy["similarity"]]
        if not missed:
            break
        for one, other in missed:
            groups.join(one, other)
        side = _assign(groups, modules.keys, policy)
    present = sorted(set(of_row))
    validation, train = _apart(side, present)
    if len(present) < len(side):
        nearest = modules.neighbours(validation, train, close_by)
    shown = {modules.module_of(text): name for text, name in reversed(rows.shown.items())}
    close = [
        {"validation": shown[one], "train": shown[other], "alike": round(alike, 4)}
        for one, (other, alike) in sorted(nearest.items(), key=lambda item: (-item[1][1], shown[item[0]]))
    ]
    sides: dict[int, set[int]] = {}
    for module in of_row:
        sides.setdefault(groups.root(module), set()).add(side[module])
    in_validation = bytearray(side[module] for module in of_row)
    leakage = {
        "modules": len(present),
        "groups": len(sides),
        "validation_groups": sum(1 in found for found in sides.values()),
        "validation_rows": sum(in_validation),
        "groups_on_both_sides": sum(len(found) > 1 for found in sides.values()),
        "close": CLOSE,
        "validation_modules": len(validation),
        "validation_modules_close_to_train": len(close),
        "nearest": close,
    }
    return Split(in_validation, policy, leakage)


def _apart(side: list[int], modules: Iterable[int]) -> tuple[list[int], list[int]]:
    """Separate modules into validation and train."""
    validation: list[int] = []
    train: list[int] = []
    for module in modules:
        (validation if side[module] else train).append(module)
    return validation, train


def _assign(groups: Groups, keys: list[bytes], policy: dict[str, Any]) -> list[int]:
    """The side of each module, 1 for validation.

    The module with the smallest seeded hash decides for its group.
    """
    first: dict[int, bytes] = {}
    for module, key in enumerate(keys):
        drawn = hashlib.blake2b(b"%d:%s" % (policy["seed"], key), digest_size=16).digest()
        root = groups.root(module)
        first[root] = min(drawn, first.get(root, drawn))
    # The first half of the hash decided which module is first. The second half is independent of that.
    limit = policy["validation_share"] * 2**64
    return [int(int.from_bytes(first[groups.root(module)][8:], "big") < limit) for module in range(len(keys))]


def ancestors(source: Source) -> list[Source]:
    """The files that this source was made from by dropping or rewriting rows, nearest first."""
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
