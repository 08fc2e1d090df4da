"""A source that shows its reading progress: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice

from kernelmill.base.rows import Row
from kernelmill.base.terminal import fit, rate, say, shorten
from kernelmill.store.source import Source

_EVERY = 10.0
_ROWS = 1_000
_NAME = 40


class ProgressSource(Source):
    """The rows of another source, or its first `limit` rows.

    Each pass shows its own progress once it takes a while.
    """

    def __init__(self, source: Source, limit: int | None = None) -> None:
        super().__init__(source.name, source.files, source.origin)
        self._all, self._limit = source, limit

    def rows(self) -> Iterator[Row]:
        started = said = time.monotonic()
        number, shown = 0, sys.stderr.isatty()
        every = 0.5 if shown else _EVERY
        rows = islice(self._all.rows(), self._limit)
        try:
            for row in rows:
                yield row
                yield from islice(rows, _ROWS - 1)
                number += _ROWS
                if time.monotonic() - said > every:
                    said = time.monotonic()
                    # The row's location says which of many files is being read.
                    line = fit(
                        [
                            (0, f"{number:,} rows read"),
                            (1, rate(number, said - started)),
                            (2, shorten(row.where, _NAME)),
                        ]
                    )
                    if shown:
                        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
                    else:
                        say(line)
        finally:
            if shown and number:
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
