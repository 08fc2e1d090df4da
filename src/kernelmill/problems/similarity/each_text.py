"""Work done once for each distinct source text, in worker processes.

Rows repeat their module: there are many answers to one problem. Pass every row's code to `add`; each distinct
text is sent to the workers, several at a time, and the results arrive in the order of their numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Generic, TypeVar

from kernelmill.base.parallel import Workers

R = TypeVar("R")
_LOT = 64 << 10
"""Characters of code sent to a worker at a time."""


class EachText(Generic[R]):
    """Applies `function` to lists of texts and passes each result to `keep`. Use it as a context manager."""

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
        """Return the number of this text. `known_by` identifies it, if that is not the whole text."""
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
        """Wait for outstanding work. No text can be added afterwards."""
        if self._waiting:
            self._send()
        for results in self._workers.rest():
            self._take(results)
        self._numbers = {}


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
