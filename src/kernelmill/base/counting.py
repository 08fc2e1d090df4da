"""Progress of threaded work on many items, on standard error: items done, rate, and the current item.

On a terminal one line is updated in place; elsewhere a new line is printed every few seconds. Lines also
appear while the first item is still running. `progress` is for a batch of calls, `evaluate.progress` for
verdicts. Standard library only.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from kernelmill.base.terminal import LINE, duration, fit, rate, say, shorten

EVERY = 10.0
_LIVE = 0.5
_NAME = 32


class Counting:
    """Progress line. Use as a context manager, with `working_on` around each item.

    `what` describes finished items, such as `problems checked`.
    """

    def __init__(self, total: int, what: str, every: float = EVERY) -> None:
        self._total, self._what, self._done = total, what, 0
        self._started = time.monotonic()
        self._live = sys.stderr.isatty()
        self._every = _LIVE if self._live else every
        self._doing: dict[object, str] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def __enter__(self) -> Counting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        self._clear()

    @contextmanager
    def working_on(self, name: str) -> Iterator[None]:
        """Mark one item as in progress inside the block."""
        item = object()  # names need not be unique
        with self._lock:
            self._doing[item] = name
            if self._ticker is None:
                # Start the thread late: servers of sandboxed processes must start while there are no threads.
                self._ticker = threading.Thread(target=self._tick, name="counting", daemon=True)
                self._ticker.start()
        try:
            yield
        finally:
            with self._lock:
                del self._doing[item]
                self._done += 1

    def skip(self, items: int) -> None:
        """Subtract items that were already done from the total."""
        with self._lock:
            self._total -= items

    def say(self, line: str) -> None:
        """Print a line above the progress line."""
        with self._lock:
            self._clear()
            say(line)

    def line(self, width: int = LINE) -> str:
        elapsed = time.monotonic() - self._started
        left = ""
        if 0 < self._done < self._total:
            left = f"{duration((self._total - self._done) * elapsed / self._done)} left"
        return fit(
            [
                (0, f"{self._done:,} of {self._total:,} {self._what}"),
                (1, rate(self._done, elapsed)),
                (3, left),
                (2, shorten(next(iter(self._doing.values()), ""), _NAME)),
            ],
            width,
        )

    def _tick(self) -> None:
        while not self._ended.wait(self._every):
            with self._lock:
                if self._live:
                    width = shutil.get_terminal_size((LINE, 24)).columns - 1
                    print(f"\r\x1b[K{self.line(width)}", end="", file=sys.stderr, flush=True)
                else:
                    say(self.line())

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
