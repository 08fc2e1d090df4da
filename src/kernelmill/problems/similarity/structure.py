"""Comparison of modules as code, independent of names.

The tokens of its normal form (`normal_form`) are hashed, and cut into shingles for comparing modules that are
nearly the same. It sees code, not meaning: `x + y` and `y + x` differ. Keys and shingles are the same
everywhere, as the tokens are.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from kernelmill.problems.similarity.normal_form import normal_tokens

SHINGLE = 5


class Structure(NamedTuple):
    key: bytes
    """Equal for modules that are the same code."""
    shingles: frozenset[int]
    """Runs of five tokens of the normal form, as 64-bit numbers. Their overlap measures similarity."""


def structure_of(code: str) -> Structure:
    """Compute the structure of a module. Code that does not parse is treated as text, ignoring whitespace."""
    return structure_of_tokens(normal_tokens(code)[0])


def structure_of_tokens(tokens: list[str]) -> Structure:
    digest = hashlib.blake2b(" ".join(tokens).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return Structure(digest, _shingles(tokens))


def jaccard(one: frozenset[int], other: frozenset[int]) -> float:
    """Return the number of shared shingles divided by the number of all shingles."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if one or other else 1.0


@lru_cache(1 << 16)
def _number(token: str) -> int:
    """Map a token to a number that is the same everywhere, unlike `hash`."""
    return int.from_bytes(
        hashlib.blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big"
    )


_MASK = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C15
_BASE_TO_SHINGLE = pow(_BASE, SHINGLE, 1 << 64)


def _shingles(tokens: list[str]) -> frozenset[int]:
    """Compute every run of `SHINGLE` tokens as a rolling hash; fewer tokens make one run."""
    numbers = [_number(token) for token in tokens]
    run = 0
    for number in numbers[:SHINGLE]:
        run = (run * _BASE + number) & _MASK
    found = {run}
    for new, old in zip(islice(numbers, SHINGLE, None), numbers, strict=False):
        run = (run * _BASE + new - old * _BASE_TO_SHINGLE) & _MASK
        found.add(run)
    return frozenset(found)
