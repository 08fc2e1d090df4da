"""Estimate the model calls and the cost of a run: the dry runs of its stages, one after the other.

A step may read what an earlier step has not written yet. Steps that keep or drop rows never add any, so
the input of the first such step gives an upper bound, reported as "at most". Rollouts of several turns
are upper bounds too, because they end with the first correct answer. Retries are not counted.
"""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from kernelmill.base.terminal import count, money
from kernelmill.errors import SourceError
from kernelmill.flow import COMMANDS, Estimate
from kernelmill.settings.base import LLMSettings, RowSettings, Settings
from kernelmill.stages.call import call_stage

_WRITES_OTHER_ROWS = {"synthesize", "specs"}
"""Stages whose output rows differ from their input rows; only the number of rows can be predicted."""


class Forecast:
    """Collects the estimates of all steps. Call `add` for each step in order, then `total`."""

    def __init__(self) -> None:
        self._to_come: dict[Path, tuple[str, str | int]] = {}
        """Files that steps will write: the step, and the source of its rows or their maximum number."""
        self._sum = Estimate(0)
        self._most = self._unknown = False

    def add(self, name: str, stage: str, settings: Settings, runs: bool) -> str:
        """Add a step. Returns its calls and cost as text."""
        source, at_most = str(getattr(settings, "source", "")), False
        _, written = self._to_come.get(Path(source).resolve(), ("", None))
        if isinstance(written, str):
            source, at_most = written, True
        rows = written if isinstance(written, int) else None
        estimate, said = Estimate(rows or 0), "no calls"
        if runs and isinstance(settings, LLMSettings):
            estimate, said = self._asked(stage, settings, source, at_most, rows)
        if runs and isinstance(settings, RowSettings) and settings.output is not None:
            kept: str | int = estimate.rows if stage in _WRITES_OTHER_ROWS or rows is not None else source
            self._to_come[settings.output.resolve()] = name, kept
        return said

    def writer(self, settings: Settings) -> str:
        """The step that will write the input of a step; empty if there is none."""
        return self._to_come.get(Path(str(getattr(settings, "source", ""))).resolve(), ("", None))[0]

    def _asked(
        self, stage: str, settings: LLMSettings, source: str, at_most: bool, rows: int | None
    ) -> tuple[Estimate, str]:
        by_model = "static" not in (getattr(settings, "rater", None), getattr(settings, "writer", None))
        by_model = by_model and getattr(settings, "teacher", None) is None
        if rows is not None:
            # The content of those rows is not known yet.
            rows *= getattr(settings, "rollouts", None) or 1
            if not by_model:
                return Estimate(rows), "no calls"
            calls = rows * getattr(settings, "turns", 1)
            self._note(Estimate(rows, calls, cost=None), at_most=True)
            return Estimate(rows), f"at most {calls:,} calls to {settings.model}, unknown cost"
        change = {"dry_run": True} | ({"source": source} if at_most else {})
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                made = call_stage(COMMANDS[stage], settings.model_copy(update=change))
        except SourceError as error:
            self._unknown = self._unknown or by_model
            return Estimate(0), f"calls are not known: {error}" if by_model else "no calls"
        estimate = made.estimate or Estimate(0)
        if not by_model:
            return estimate, "no calls"
        at_most = at_most or estimate.at_most
        self._note(estimate, at_most)
        return estimate, f"{'at most ' if at_most else ''}{_words(estimate)} to {settings.model}"

    def _note(self, estimate: Estimate, at_most: bool) -> None:
        self._most = self._most or at_most
        so_far = self._sum
        cost = None if so_far.cost is None or estimate.cost is None else so_far.cost + estimate.cost
        self._sum = Estimate(
            0, so_far.calls + estimate.calls, so_far.tokens_in + estimate.tokens_in,
            so_far.tokens_out + estimate.tokens_out, cost,
        )  # fmt: skip

    def total(self) -> str:
        more = ", and what is not known yet" if self._unknown else ""
        if not self._sum.calls:
            return f"no calls{more}"
        hint = "" if self._sum.cost is not None else ' (give [prices."model"] in the config)'
        return f"{'at most ' if self._most else ''}{_words(self._sum)}{more}{hint}"


def _words(estimate: Estimate) -> str:
    if not estimate.calls:
        return "no calls"
    tokens = (
        f", {count(estimate.tokens_in)} tokens in, {count(estimate.tokens_out)} out"
        if estimate.tokens_in
        else ""
    )
    return f"{estimate.calls:,} calls{tokens}, {money(estimate.cost)}"
