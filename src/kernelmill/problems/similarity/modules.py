"""The distinct modules of a set of rows, and which of them are near duplicates.

Each text is analysed once, in worker processes, whatever its class is called. Texts that are the same code
are one module (`structure`). Near duplicates are found by MinHash (rensa) in bands. The exact share of common
shingles confirms each candidate pair, so chance may miss a pair but never invents one. Shingles are kept in a
temporary file; memory use is about a kilobyte a distinct module.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from kernelmill.base.no_gc import no_collector
from kernelmill.problems.similarity.each_text import EachText
from kernelmill.problems.similarity.structure import jaccard, structure_of

PERMUTATIONS = 126
SURE = 6
"""Sketch values a band when searching duplicates.

It finds a similarity of 0.85 with 99.995%, and compares 28% of pairs at 0.5.
"""
WIDE = 5
"""Sketch values a band when searching neighbours: finds a similarity of 0.7 with 99%."""
CROWD, WINDOW = 64, 6
"""Up to CROWD modules in a band are all compared pairwise.

In a larger band, each is compared with WINDOW on either side.
"""
_RAREST = 12
"""The number of rare shingles by which a module in such a crowd is looked up as well."""
_COUNTERS = 1 << 23
"""Counters of shingle frequency; two shingles that share a counter may seem more frequent than they are."""
_SPOOLED = 16 << 20
_SKETCHED = 2048

_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def _analyse(codes: list[str]) -> list[tuple[bytes, bytes]]:
    """Return the key and the sorted shingles of each text."""
    with no_collector():
        found = []
        for code in codes:
            structure = structure_of(code)
            shingles = array("Q", sorted(structure.shingles)).tobytes()
            found.append((structure.key, shingles))
        return found


def _nameless(code: str) -> str:
    """Remove the name of the first class, if the text is clearly the same module under any name."""
    found = _CLASS.search(code)
    if found is None or found[1] in ("self", "forward") or found[1].startswith("__"):
        return code
    parts = code.split(found[1])
    return "\0".join(parts) if all(part.endswith(("class ", "super(")) for part in parts[:-1]) else code


class Modules:
    """Collects every row's code with `add`; after `finish`, results are by module number.

    Use it as a context manager: it holds worker processes and a temporary file.
    """

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        """The key of each module, in order of first appearance."""
        self._texts = EachText(_analyse, self._keep)
        self._of_text = array("Q")
        self._numbers: dict[bytes, int] = {}
        self._spool = tempfile.SpooledTemporaryFile(_SPOOLED)  # noqa: SIM115
        self._offsets = array("Q", [0])
        self._sketches: list[bytes] | None = None
        self.shingles = lru_cache(1024)(self._read)

    def __enter__(self) -> Modules:
        return self

    def __exit__(self, *_: object) -> None:
        self._texts.__exit__()
        self._spool.close()

    def add(self, code: str) -> int:
        """Return the number of this text; `module_of` maps it to its module after `finish`."""
        return self._texts.add(code, _nameless(code))

    def finish(self) -> None:
        """Mark the end of the rows."""
        self._texts.finish()
        self._numbers = {}

    def _keep(self, analysed: tuple[bytes, bytes]) -> None:
        key, shingles = analysed
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.keys)
            self.keys.append(key)
            self._spool.write(shingles)
            self._offsets.append(self._offsets[-1] + len(shingles))
        self._of_text.append(number)

    def module_of(self, text: int) -> int:
        return self._of_text[text]

    def _read(self, module: int) -> frozenset[int]:
        return frozenset(self._array(module, module + 1))

    def _array(self, first: int, end: int) -> array[int]:
        """Return the shingles of the modules from `first` up to `end`, concatenated."""
        self._spool.seek(self._offsets[first])
        values = array("Q")
        values.frombytes(self._spool.read(self._offsets[end] - self._offsets[first]))
        return values

    def alike(self, one: int, other: int) -> float:
        return jaccard(self.shingles(one), self.shingles(other))

    def near(self, similarity: float) -> Groups:
        """Group modules: two that are at least this similar are in the same group."""
        groups = Groups(len(self.keys))
        sizes = self._sizes()
        differ: set[int] = set()

        def compare(bucket: list[int]) -> None:
            reach = len(bucket) if len(bucket) <= CROWD else WINDOW
            for place, one in enumerate(bucket[:-1], 1):
                least, most = sizes[one] * similarity, sizes[one] / similarity
                for other in bucket[place : place + reach]:
                    pair = one << 32 | other if one < other else other << 32 | one
                    if pair in differ or not least <= sizes[other] <= most:
                        continue
                    if groups.root(one) == groups.root(other):
                        continue
                    if self.alike(one, other) >= similarity:
                        groups.join(one, other)
                    else:
                        differ.add(pair)

        crowded = False
        for buckets in self._bands(SURE, range(len(self.keys))):
            for bucket in buckets.values():
                crowded = crowded or len(bucket) > CROWD
                compare(bucket)
        if crowded:
            for bucket in self._sharing().values():
                compare(bucket)
        return groups

    def neighbours(
        self, these: Sequence[int], among: Sequence[int], similarity: float
    ) -> dict[int, tuple[int, float]]:
        """Find the nearest of `among` for each of `these`, if it is at least this similar."""
        sketches, sizes = self._sketch(), self._sizes()
        nearest: dict[int, tuple[int, float]] = {}
        seen: set[int] = set()
        asked = sorted(these, key=sketches.__getitem__)

        def compare(one: int, bucket: list[int]) -> None:
            least, most = sizes[one] * similarity, sizes[one] / similarity
            for other in bucket:
                pair = one << 32 | other
                if pair in seen or not least <= sizes[other] <= most:
                    continue
                seen.add(pair)
                alike = self.alike(one, other)
                if alike >= similarity and alike > nearest.get(one, (0, 0.0))[1]:
                    nearest[one] = (other, alike)

        crowded = False
        for start, buckets in zip(_starts(WIDE), self._bands(WIDE, among), strict=True):
            at = slice(start, start + 4 * WIDE)
            for one in asked:
                bucket = buckets.get(sketches[one][at], [])
                if len(bucket) > CROWD:
                    crowded = True
                    place = bisect_left(bucket, sketches[one], key=sketches.__getitem__)
                    bucket = bucket[max(0, place - WINDOW) : place + WINDOW]
                compare(one, bucket)
        if crowded:
            wanted, found = set(asked), set(among)
            for bucket in self._sharing().values():
                others = [module for module in bucket if module in found]
                for one in bucket:
                    if one in wanted and others:
                        compare(one, others)
        return nearest

    def _sharing(self) -> dict[int, list[int]]:
        """Index modules by their rarest shingles that a few others share.

        In a crowd of modules made from one template, these tell which ones are closest to each other.
        """
        counts = bytearray(_COUNTERS)
        for first in range(0, len(self.keys), _SKETCHED):
            for shingle in self._array(first, min(first + _SKETCHED, len(self.keys))):
                slot = shingle % _COUNTERS
                counts[slot] = min(counts[slot] + 1, 255)
        sharing: dict[int, list[int]] = {}
        for module in range(len(self.keys)):
            few = [
                (counts[shingle % _COUNTERS], shingle)
                for shingle in self._array(module, module + 1)
                if 2 <= counts[shingle % _COUNTERS] <= CROWD
            ]
            for _, shingle in sorted(few)[:_RAREST]:
                sharing.setdefault(shingle, []).append(module)
        return sharing

    def _sizes(self) -> list[int]:
        return [end - start for start, end in zip(self._offsets, self._offsets[1:], strict=False)]

    def _bands(self, band: int, modules: Sequence[int]) -> Iterator[dict[bytes, list[int]]]:
        """Yield, for each band of the sketches, the modules with the same values, in sketch order.

        In a large bucket, each module is compared only with its neighbours and with those that share a rare
        shingle. Otherwise modules made from one template, each a little different, would all be compared
        pairwise.
        """
        sketches = self._sketch()
        order = sorted(modules, key=sketches.__getitem__)
        for start in _starts(band):
            at = slice(start, start + 4 * band)
            buckets: dict[bytes, list[int]] = {}
            for module in order:
                buckets.setdefault(sketches[module][at], []).append(module)
            yield buckets

    def _sketch(self) -> list[bytes]:
        if self._sketches is None:
            from rensa import RMinHash

            self._sketches = []
            for first in range(0, len(self.keys), _SKETCHED):
                end = min(first + _SKETCHED, len(self.keys))
                base = self._offsets[first]
                rows = array("Q", ((offset - base) // 8 for offset in self._offsets[first : end + 1]))
                matrix = RMinHash.digest_matrix_from_flat_token_hashes(
                    self._array(first, end), rows, PERMUTATIONS, 42
                )
                self._sketches += [array("I", row).tobytes() for row in matrix.to_rows()]
        return self._sketches


def _starts(band: int) -> range:
    """Return where each band begins in a sketch, in bytes."""
    return range(0, 4 * (PERMUTATIONS - band + 1), 4 * band)


class Groups:
    """Groups of modules. The root of a group is the module that was seen first."""

    def __init__(self, count: int) -> None:
        self._parent = array("L", range(count))

    def root(self, module: int) -> int:
        parent = self._parent
        while parent[module] != module:
            parent[module] = parent[parent[module]]
            module = parent[module]
        return module

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.root(one), self.root(other)))
        self._parent[high] = low
