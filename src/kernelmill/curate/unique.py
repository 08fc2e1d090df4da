"""`kernelmill unique`: the best row of each module; of equals, the first.

What makes two modules the same is `--by`: their *name* (the old way, which loses every other `Block` and `Net`), their
*structure* (the same code, whatever it is called), or *near*: structure, and then nearly the same code (MinHash candidates,
each confirmed by the exact share of code in common). Every dropped row says which row it duplicates and how alike they are.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from msgspec import Struct

from kernelmill.batch import Drop
from kernelmill.config import UniqueSettings
from kernelmill.problems.structure import Structure, jaccard, structure_of
from kernelmill.row_stage import run_row_stage
from kernelmill.rows import Info, Row, RowReader, read_info

PERMUTATIONS, BANDS = 128, 32


class _Row(Struct):
    reward: float
    info: Info | str


class _Seen(NamedTuple):
    reward: float
    where: str
    name: str
    structure: str


class Unique:
    """The stage: `scan` notes every row, `decide` groups them, `take` keeps the best of each group."""

    scans = True

    def __init__(self, by: str, similarity: float) -> None:
        self._by = by
        self._similarity = similarity
        self._read = RowReader(_Row)
        self._rows: dict[int, _Seen] = {}
        self._structures: dict[str, Structure] = {}
        self._of_code: dict[bytes, str] = {}
        self._best: dict[int, int] = {}
        """The row that stands for each row's group."""
        self._groups: dict[str, int] = {}

    def scan(self, row: Row) -> None:
        read = self._read(row)
        info = read_info(row.where, read.info)
        structure = "" if self._by == "name" else self._structure(info.python_code)
        self._rows[row.index] = _Seen(read.reward, row.where, info.module_name, structure)

    def _structure(self, code: str) -> str:
        """The key of a module's structure; the same text is analysed once."""
        digest = hashlib.blake2b(code.encode("utf-8", "replace"), digest_size=16).digest()
        known = self._of_code.get(digest)
        if known is None:
            found = structure_of(code)
            self._structures.setdefault(found.key, found)
            self._of_code[digest] = known = found.key
        return known

    def decide(self) -> None:
        ways = {"name": {index: seen.name for index, seen in self._rows.items()}}
        if self._by != "name":
            near = self._near()
            ways["structure"] = {index: seen.structure for index, seen in self._rows.items()}
            ways["near"] = {index: near[seen.structure] for index, seen in self._rows.items()}
        self._groups = {way: len(set(groups.values())) for way, groups in ways.items()}
        best: dict[str, int] = {}
        for index, group in ways[self._by].items():
            held = best.setdefault(group, index)
            if self._rows[index].reward > self._rows[held].reward:
                best[group] = index
        self._best = {index: best[group] for index, group in ways[self._by].items()}

    def _near(self) -> dict[str, str]:
        """For each structure, the one that stands for its group of near duplicates (in order of first appearance)."""
        from rensa import RMinHash, RMinHashLSH

        parent = {key: key for key in self._structures}

        def root(key: str) -> str:
            while parent[key] != key:
                parent[key] = parent[parent[key]]
                key = parent[key]
            return key

        keys = list(self._structures)
        index = RMinHashLSH(threshold=self._similarity, num_perm=PERMUTATIONS, num_bands=BANDS)
        for number, key in enumerate(keys):
            sketch = RMinHash(num_perm=PERMUTATIONS, seed=42)
            sketch.update(sorted(self._structures[key].shingles))
            for candidate in sorted(index.query(sketch)):
                other = keys[candidate]
                if root(other) != root(key) and self._alike(other, key) >= self._similarity:
                    parent[root(key)] = root(other)
            index.insert(number, sketch)
        return {key: root(key) for key in keys}

    def _alike(self, one: str, other: str) -> float:
        return jaccard(self._structures[one].shingles, self._structures[other].shingles)

    def take(self, row: Row) -> bytes | Drop:
        if row.index not in self._rows:
            self._read(row)  # raises what was wrong with it
        best = self._best[row.index]
        if best == row.index:
            return row.raw
        this, kept = self._rows[row.index], self._rows[best]
        if self._by == "name":
            how = "the same name"
        elif this.structure == kept.structure:
            how = "the same code"
        else:
            how = f"{self._alike(this.structure, kept.structure):.0%} of the code in common"
        reason = (
            f"duplicates {kept.where} ({kept.name}, reward {kept.reward:g}): {how}, reward {this.reward:g}"
        )
        return Drop(reason, f"a better or earlier row of the same module ({self._by})")

    def summary(self) -> list[tuple[str, str]]:
        kept = ", ".join(f"--by {way} {number:,}" for way, number in self._groups.items())
        return [("would keep", kept)]

    def details(self) -> dict[str, Any]:
        return {"modules": self._groups}


def unique(settings: UniqueSettings) -> None:
    run_row_stage("unique", settings, Unique(settings.by, settings.similarity), settings.output)
