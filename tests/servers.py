"""Servers of confined processes that one test hands on to the next.

A server imports torch for three seconds before it can do anything. A test that needs one with the same settings as an earlier test
of this worker gets that one, if it is idle and alive. A test about servers themselves is marked `own_servers`.
"""

from __future__ import annotations

import json
import sys

from kernelmill.sandbox import parent
from kernelmill.sandbox.wire import Settings

_MOST = 10
"""Idle servers at a time: each holds a few hundred MB."""
_idle: list[Kept] = []
Connection = parent._Connection


class Kept(Connection):
    """A connection that is not closed, but put aside for whoever asks for the same next."""

    def __init__(self, settings: Settings) -> None:
        self.key = _key(settings)
        super().__init__(settings)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        if self.ended or self._pending or not self._ready.done() or self._ready.exception() is not None:
            super().close()
            return
        _idle.append(self)
        if len(_idle) > _MOST:
            _idle.pop(0).end()

    def end(self) -> None:
        super().close()


def connect(settings: Settings) -> Kept:
    """Stands for `Connection`."""
    for kept in [one for one in _idle if one.ended]:
        _idle.remove(kept)
        kept.end()
    for kept in _idle:
        if kept.key == _key(settings):
            _idle.remove(kept)
            return kept
    return Kept(settings)


def idle_pids() -> set[int]:
    return {kept.pid for kept in _idle}


def end_all() -> None:
    while _idle:
        _idle.pop().end()


def _key(settings: Settings) -> str:
    return json.dumps([settings, sys.path])
