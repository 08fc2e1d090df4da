"""Detect a model that cannot do the job before all rows have been paid for.

Any model gives an unusable answer now and then. Many in a row mean the wrong model, a prompt that it does not
follow, or a token limit that truncates every answer. Does not judge answers: the caller reports which were
usable.
"""

from __future__ import annotations

from collections import Counter, deque

from kernelmill.base.control import Control, Stats
from kernelmill.base.terminal import plain
from kernelmill.errors import Stopped
from kernelmill.settings.config import redact

_EXAMPLES = 3
_LENGTH = 100


class Usefulness:
    """Stops the run after `most` unusable answers in a row; 0 means never."""

    def __init__(self, most: int, stats: Stats, control: Control) -> None:
        self._most = most
        self._stats = stats
        self._control = control
        self._row: deque[tuple[str, str]] = deque(maxlen=max(1, most))

    def usable(self) -> None:
        self._row.clear()

    def unusable(self, reason: str, text: str) -> None:
        self._stats.unusable += 1
        self._row.append((reason, text))
        if self._most and len(self._row) == self._most and not self._control.stopping.is_set():
            self._control.stop(Stopped(self._message()))

    def _message(self) -> str:
        reasons = Counter(_short(reason) for reason, _ in self._row).most_common(_EXAMPLES)
        why = "; ".join(f"{reason} ({number})" for reason, number in reasons)
        said = list(dict.fromkeys(_short(text) for _, text in reversed(self._row)))[:_EXAMPLES]
        shown = ", ".join(f'"{text}"' if text else "nothing" for text in said)
        return (
            f"{self._most} answers in a row could not be used: {why}. The model said, for example: {shown}. "
            "Check --model, the prompt and the token limit (kernelmill journal list shows the answers); "
            "--max-unusable 0 goes on regardless"
        )


def _short(text: str) -> str:
    # Redact before truncating: a truncated key would no longer match, and half a key is still a secret.
    line = plain(" ".join(redact(text).split()))
    return line if len(line) <= _LENGTH else f"{line[:_LENGTH]}…"
