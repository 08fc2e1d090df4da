"""Keeping `--max-cost`: whether one call more fits, before anybody knows what it will cost."""

from __future__ import annotations

from kernelmill.base.control import Control, Stats
from kernelmill.errors import Stopped
from kernelmill.settings.fields import LLMSettings, Price

_LONG_ANSWER = 4096
_KNOWN_AFTER = 8


class Budget:
    """What calls cost so far, and whether the next may be made."""

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
        """Whether one call more fits `max_cost`, with all that are in flight as dear as the dearest so far.

        Before the first answers the length of one is not known: then it is taken to be long, but for a call that would be
        alone in flight. So the budget is passed at the most by what one call is dearer than all before it.
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
            # If not, what is in flight may still turn out cheap enough for one more.
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
