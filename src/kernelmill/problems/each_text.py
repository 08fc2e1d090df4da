"""Something done once to each different text of code, in worker processes.

Rows repeat their module: many answers to one question. Give every row's code to `add`; each different one is sent to the workers, a
few together, and the results come in the order of their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Generic, TypeVar

from kernelmill.base.parallel import Workers

R = TypeVar("R")
_LOT = 64 << 10
"""Characters of code that a worker is sent at once."""


class EachText(Generic[R]):
    """`function` takes several texts and gives as many results, which `keep` gets one by one. Use as a context manager."""

    def __init__(self, function: Callable[[list[str]], list[R]], keep: Callable[[R], None]) -> None:
        self._workers: Workers[list[str], list[R]] = Workers(function)
        self._keep = keep
        self._numbers: dict[bytes, int] = {}
        self._waiting: list[str] = []
        self._size = 0

    def __enter__(self) -> EachText[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def add(self, code: str, known_by: str | None = None) -> int:
        """The number of this text. `known_by` is what makes it the same as another one, where that is not the whole text."""
        digest = _digest(code if known_by is None else known_by)
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._numbers)
            self._waiting.append(code)
            self._size += len(code)
            if self._size >= _LOT:
                self._send()
        return number

    def _send(self) -> None:
        for results in self._workers.give(self._waiting):
            self._take(results)
        self._waiting, self._size = [], 0

    def _take(self, results: list[R]) -> None:
        for result in results:
            self._keep(result)

    def finish(self) -> None:
        """Wait for what is still worked on. No text can be added after that."""
        if self._waiting:
            self._send()
        for results in self._workers.rest():
            self._take(results)
        self._numbers = {}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
