"""Sandboxes that differ only in their environment variables.

A server imports what its environment asks for before it forks (`evaluate.task.offline_models`), so code that
needs other imports needs another server.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType

from kernelmill.sandbox.parent import FORKED, Sandbox
from kernelmill.sandbox.reply import Doing


class Pool:
    """Sandboxes by environment, each made by `make` when it is first asked for. Safe to use from several threads."""

    def __init__(self, make: Callable[[Mapping[str, str]], Sandbox]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sandboxes: dict[frozenset[tuple[str, str]], Sandbox] = {}
        self._process, self._closed = os.getpid(), False

    def get(self, environment: Mapping[str, str]) -> Sandbox:
        if self._process != os.getpid():
            raise RuntimeError(FORKED)
        with self._lock:
            if self._closed:
                raise RuntimeError("this pool of sandboxes is closed")
            key = frozenset(environment.items())
            if key not in self._sandboxes:
                self._sandboxes[key] = self._make(environment)
            return self._sandboxes[key]

    def doing(self) -> list[Doing]:
        """What each running request is doing."""
        return [one for sandbox in list(self._sandboxes.values()) for one in sandbox.doing()]

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
        for sandbox in self._sandboxes.values():
            sandbox.close()
