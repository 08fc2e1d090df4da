"""Enforce `--max-cost`: decide whether one more call fits before its cost is known."""

from __future__ import annotations

from kernelmill.base.control import Control, Stats
from kernelmill.errors import Stopped
from kernelmill.settings.base import LLMSettings, Price

_LONG_ANSWER = 4096
_KNOWN_AFTER = 8


class Budget:
    """Tracks what calls cost and decides whether the next one may be made."""

    def __init__(self, settings: LLMSettings, price: Price | None, stats: Stats, control: Control) -> None:
        self._settings = settings
        self._price = price
        self._stats = stats
        self._control = control
        self._priced = 0
        self._dearest = 0.0

    def note(self, cost: float | None) -> None:
        self._priced += cost is not None
        self._dearest = max(self._dearest, cost or 0.0)

    def affordable(self, body: bytes) -> bool:
        """Return whether one more call fits `max_cost`.

        Every call in flight is assumed to cost as much as the most expensive one so far. Until enough answers
        have arrived, answers are assumed to be long, except for a call that would be alone in flight. A run
        can therefore exceed the budget at most by the amount by which one call costs more than all calls
        before it.
        """
        most, price, stats = self._settings.max_cost, self._price, self._stats
        if most is None or price is None:
            return True
        if stats.cost is None:
            self._control.stop(
                Stopped("the server does not say how many tokens a call took, so --max-cost cannot be kept")
            )
            return False
        question = len(body) / 3.5 * price.input / 1e6
        spent = stats.spent_before + stats.cost
        if stats.in_flight:
            sampling = self._settings.sampling
            limit = sampling.max_completion_tokens or sampling.max_tokens or _LONG_ANSWER
            dearest = self._dearest if self._priced >= _KNOWN_AFTER else question + limit * price.output / 1e6
            # Do not stop on False: the calls in flight may turn out cheap enough for one more.
            return spent + dearest * (stats.in_flight + 1) <= most
        if spent + max(self._dearest, question) <= most:
            return True
        self._control.stop(
            Stopped(
                f"--max-cost {most:g} would be passed: ${spent:.4f} spent on this job; "
                "raise it and run the same command to go on"
            )
        )
        return False
