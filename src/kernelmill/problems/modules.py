"""The distinct modules of a set of rows, and which of them are nearly the same.

Each text is analysed once, whatever its class is called, in worker processes; texts that are the same code are one module
(`structure`). Near duplicates are found by MinHash (rensa) in bands, and each candidate is confirmed by the exact share of shingles in common, so that chance may miss a pair but
never make one. Shingles wait in a temporary file: what is held in memory is about a kilobyte a distinct module.
"""

from __future__ import annotations

import re
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache

from kernelmill.base.no_gc import no_collector
from kernelmill.problems.each_text import EachText
from kernelmill.problems.structure import jaccard, structure_of

PERMUTATIONS = 126
SURE = 6
"""Sketch values in a band where duplicates are looked for: 0.85 alike is found with 99.995%, 0.5 alike costs a look in 28%."""
WIDE = 5
"""The same where neighbours are looked for: 0.7 alike is found with 99%."""
CROWD, WINDOW = 64, 6
"""Modules that share a band and are all compared with each other; in a larger crowd each looks at so many on either side."""
_RAREST = 12
"""Shingles by which a module of a crowd is looked up, beside that."""
_COUNTERS = 1 << 23
"""Of how often shingles stand, so many are kept apart; two that share a counter may seem more common than they are."""
_SPOOLED = 16 << 20
_SKETCHED = 2048

_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def _analyse(codes: list[str]) -> list[tuple[bytes, bytes]]:
    """The key and the sorted shingles of each text."""
    with no_collector():
        found = []
        for code in codes:
            structure = structure_of(code)
            shingles = array("Q", sorted(structure.shingles)).tobytes()
            found.append((structure.key, shingles))
        return found


def _nameless(code: str) -> str:
    """The text without the name of its first class, where that is easily seen to be one and the same module under any name."""
    found = _CLASS.search(code)
    if found is None or found[1] in ("self", "forward") or found[1].startswith("__"):
        return code
    parts = code.split(found[1])
    return "\0".join(parts) if all(part.endswith(("class ", "super(")) for part in parts[:-1]) else code


class Modules:
    """Give it every row's code with `add`, then call `finish`; what it says after that is by module number.

    Use as a context manager: it holds worker processes and a temporary file.
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
        """The number of this text; `module_of` says later which module that is."""
        return self._texts.add(code, _nameless(code))

    def finish(self) -> None:
        """All rows were seen."""
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
        """The shingles of the modules from `first` up to `end`, one after the other."""
        self._spool.seek(self._offsets[first])
        values = array("Q")
        values.frombytes(self._spool.read(self._offsets[end] - self._offsets[first]))
        return values

    def alike(self, one: int, other: int) -> float:
        return jaccard(self.shingles(one), self.shingles(other))

    def near(self, similarity: float) -> Groups:
        """Modules joined where two of them are at least so much alike."""
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
        """The nearest of `among` to each of `these`, where it is at least so much alike."""
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
        """Modules by the rarest shingles that they share with a few others.

        In a crowd, modules made from one pattern, these tell who is closer to whom than to the rest.
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
        """For each band of the sketches, the modules that have the same one, in the order of their sketches.

        Of many that share a band, each is compared with those next to it, and with those that share something rare: modules made
        from one pattern, each a little different, would otherwise be compared all with all.
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
    """Where each band begins in a sketch, in bytes."""
    return range(0, 4 * (PERMUTATIONS - band + 1), 4 * band)


class Groups:
    """Modules that belong together; each group has a root, the module of it that was seen first."""

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

    def count(self) -> int:
        return sum(1 for module, parent in enumerate(self._parent) if module == parent)
