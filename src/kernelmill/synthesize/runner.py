"""A run of `synthesize`, whoever writes: plan, answer, write, sum up.

The three passes of every stage that is answered (`batch`). Generation and judging overlap in the second one, for each
rollout goes from one to the other by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kernelmill.batch import Batch, Plan
from kernelmill.config import public
from kernelmill.control import Control, Stats
from kernelmill.errors import BadRow, ConfigError, OutputError, Stopped
from kernelmill.flow import Made
from kernelmill.progress import Progress
from kernelmill.rows import Drop
from kernelmill.run_stage import journal_path, owed, usage
from kernelmill.store import Output
from kernelmill.store.output import test_path
from kernelmill.synthesize import problems, row
from kernelmill.synthesize.grading import Grader
from kernelmill.synthesize.journal import STAGE, SynthesisReader, open_journal
from kernelmill.synthesize.problems import Asked, Problem
from kernelmill.synthesize.rollout import Rollouts, Standing, Turn
from kernelmill.synthesize.settings import SynthesizeSettings
from kernelmill.synthesize.statistics import Statistics
from kernelmill.synthesize.writer import Writer
from kernelmill.terminal import count, duration, money, say


class Opened(NamedTuple):
    """What a writer is made from. What it needs open it enters in `stack`."""

    stack: AsyncExitStack
    journal: SynthesisReader
    """To be written too, but in a dry run."""
    stats: Stats
    control: Control


class Synthesis(Batch[Problem]):
    """A batch of rollouts; at the end it knows the rows' problems, so that the best of each can be kept."""

    def __init__(
        self,
        settings: SynthesizeSettings,
        source: problems.Rollouts,
        asked: Asked,
        rollouts: Rollouts,
        render: Callable[[Problem, Standing], bytes],
        stats: Stats,
        control: Control,
    ) -> None:
        super().__init__(
            source, _Unfinished(asked), rollouts, stats, control,
            reject_bad_rows=settings.on_bad_row == "reject", test_mode=settings.test_mode,
        )  # fmt: skip
        self._keep = settings.keep
        self.rollouts = rollouts
        self._render = render
        self._best: tuple[int, int | None] = (-1, None)
        self.statistics = Statistics(settings.export)
        self._export = settings.export

    async def write(self, plan: Plan, output: Output) -> None:
        """The rows in the order of the source; what is not kept or not there is rejected, with its reason."""
        for (source_row, taken), key in zip(self._taken(), plan.keys, strict=True):
            await asyncio.sleep(0)
            if isinstance(taken, BadRow):
                output.reject(source_row, taken.reason, "the row cannot be read")
                continue
            if isinstance(taken, Drop):
                output.reject(source_row, taken.reason, taken.kind)
                continue
            standing = self.rollouts.look(taken)
            if not standing.whole:
                assert key is not None
                reason = self._failures.setdefault(key, "not answered")
                output.reject(source_row, reason, "the call failed; run again to ask again")
                self.statistics.owed += 1
                continue
            self.statistics.add(taken.example_id, standing.turns)
            if reason := self._unwanted(taken, standing.turns):
                output.reject(source_row, reason, f"not kept (--keep {self._keep})")
            else:
                output.keep(self._render(taken, standing))

    def _unwanted(self, problem: Problem, turns: list[Turn]) -> str:
        """Why this rollout is not to be kept; empty where it is."""
        if self._keep == "all":
            return ""
        verdict = turns[row.chosen(turns, self._export)].verdict
        if verdict.verdict != "correct":
            return f"{verdict.verdict} ({verdict.status})"
        if self._keep == "fastest" and self._fastest(problem) != problem.sample:
            return "another candidate of this problem is faster, or as good and earlier"
        return ""

    def _fastest(self, problem: Problem) -> int | None:
        """The best sample of a problem. Its rollouts stand together, so the last one found is remembered."""
        if self._best[0] != problem.example_id:
            ranked = []
            for sample in range(problem.samples):
                standing = self.rollouts.look(problem._replace(sample=sample))
                if standing.whole:
                    turns = standing.turns
                    ranked.append((row.rank(turns[row.chosen(turns, self._export)]), -sample))
            self._best = problem.example_id, -max(ranked)[1] if ranked else None
        return self._best[1]


class _Unfinished:
    """The first half of a stage: rows are finished by `Synthesis`, which sees a problem's rollouts together."""

    def __init__(self, asked: Asked) -> None:
        self.take = asked.take

    def finish(self, row: object, item: Problem, columns: dict[str, Any]) -> bytes:
        raise AssertionError("rows are written by Synthesis.write")


async def run(
    settings: SynthesizeSettings,
    open_writer: Callable[[Opened], Awaitable[Writer]],
    dry_run: Callable[[Synthesis, Plan], None],
) -> Made:
    """Have candidates written and judged. Raises `Stopped` where some are still owed."""
    started = time.monotonic()
    output = Output(test_path(settings.output) if settings.test_mode else settings.output)
    journal_file = journal_path(STAGE, settings)
    output.refuse(journal_file, "the journal")
    if settings.stats is not None:
        output.refuse(settings.stats, "the file for --stats")
        if settings.stats.is_dir() or settings.stats.resolve() == journal_file.resolve():
            raise OutputError(f"{settings.stats} cannot be the file for --stats: name another")
    asked = Asked(settings)
    source = problems.Rollouts(settings.sets())
    for file in source.files:
        output.refuse(file.path, "the source")
    stats, control = Stats(), Control()
    async with AsyncExitStack() as stack:
        if not settings.dry_run:
            stack.enter_context(output)
        journal = stack.enter_context(open_journal(journal_file, settings.dry_run))
        grader = Grader(settings, journal)
        if not settings.dry_run:
            stack.enter_context(grader)  # it may refuse, before anything is paid
        writer = await open_writer(Opened(stack, journal, stats, control))
        rollouts = Rollouts(writer, grader, asked.again, settings.turns, control)

        def render(problem: Problem, standing: Standing) -> bytes:
            return row.evals_row(
                problem, standing, settings.export, settings.reasoning_field, grader.reward, writer.name
            )

        batch = Synthesis(settings, source, asked, rollouts, render, stats, control)
        with control.signals():
            plan = await batch.plan()
            if settings.dry_run:
                dry_run(batch, plan)
                return Made()
            await _answer(batch, plan, settings, writer.name)
            await batch.write(plan, output)
        statistics = batch.statistics
        details = {
            "by": writer.name,
            "source": source.origin,
            "prompts": {prompt.file.name: prompt.sha256 for prompt in asked.prompts},
            "seconds": round(time.monotonic() - started, 3),
            "reward": grader.reward,
            "device": grader.options.device,
            "judged": grader.judged,
            "usage": usage(stats),
            "statistics": statistics.report(),
        }
        rows = output.commit(STAGE, plan.rows, _config(settings), details)["rows"]
        if settings.stats is not None:
            _write_stats(settings.stats, statistics)
        print(f"{STAGE} by {writer.name}")
        lines = [("rollouts", f"{plan.rows:,}"), ("kept", f"{output.kept:,}")]
        lines += [("rejected", f"{number:,}  {kind}") for kind, number in output.reasons.most_common()]
        lines += statistics.summary()
        lines += [
            ("reward", grader.reward),
            ("calls", f"{stats.calls:,}, {stats.retries.total():,} retries"),
            ("tokens", f"{count(stats.tokens_in)} in, {count(stats.tokens_out)} out"),
            ("cost", money(stats.cost if stats.calls else 0.0)),
            ("time", duration(time.monotonic() - started)),
            *output.listing(),
        ]
        for label, value in lines:
            print(f"{label:<12}{value}")
        if batch.owed_after:
            raise owed(batch.owed_after, f" (see {output.rejected_path})")
        if troubled := statistics.statuses["INFRA_ERROR"]:
            raise Stopped(
                f"{troubled:,} candidates could not be judged (INFRA_ERROR): run the same command again"
            )
        cost = stats.cost if stats.calls else 0.0
        return Made((output.path, output.manifest_path), rows["in"], rows["out"], rows["rejected"], cost)


async def _answer(batch: Synthesis, plan: Plan, settings: SynthesizeSettings, by: str) -> None:
    stats = batch.stats
    test = " (test mode)" if settings.test_mode else ""
    say(
        f"{plan.rows:,} rollouts{test}: {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {by}; "
        f"{stats.answered_before:,} whole already, {len(plan.owed):,} to do"
    )
    if settings.max_cost is not None and stats.unknown_before:
        raise ConfigError(
            f"--max-cost cannot be kept: the cost of {stats.unknown_before:,} earlier answers of this job is not known"
        )
    try:
        await batch.answer(plan, Progress(stats, STAGE, priced=True))
    except Stopped as stopped:
        raise type(stopped)(
            f"{stopped}; {stats.done:,} rollouts done in this run, {stats.total - stats.done:,} left, nothing is lost: "
            f"the same command goes on from here"
        ) from None


def _config(settings: SynthesizeSettings) -> dict[str, Any]:
    """The settings as they are saved: those that the command line knows, and the sets where there are any."""
    fields = SynthesizeSettings.model_fields
    unknown = {name for name, field in fields.items() if field.description is None} - {"sampling", "prices"}
    return {
        name: value
        for name, value in public(settings).items()
        if name not in unknown or (name == "env" and value)
    }


def _write_stats(path: Path, statistics: Statistics) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(statistics.report()), indent=2) + b"\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
