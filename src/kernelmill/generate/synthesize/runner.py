"""A run of `synthesize`, for any writer: plan, answer, write, summarise.

It has the three passes of every answering stage (`stages.answering`). Writing and judging overlap in the
second pass, because each rollout moves from one to the other on its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.base.control import Control, Stats
from kernelmill.base.terminal import duration, say
from kernelmill.base.whole_file import encoded, replacing
from kernelmill.errors import OutputError, Stopped
from kernelmill.evaluate.evaluator import needs_torch
from kernelmill.flow import Estimate, StageResult
from kernelmill.generate.synthesize import row
from kernelmill.generate.synthesize.grading import Grader
from kernelmill.generate.synthesize.problems import CandidateRequest, PromptBuilder, RolloutSource
from kernelmill.generate.synthesize.rollout import RolloutRunner, RolloutState
from kernelmill.generate.synthesize.row_filter import SynthesizeStage
from kernelmill.generate.synthesize.settings import STAGE, SynthesizeSettings
from kernelmill.generate.synthesize.statistics import Statistics
from kernelmill.generate.synthesize.writer import Writer
from kernelmill.llm.journal import JournalReader
from kernelmill.settings.config import public
from kernelmill.stages.answering import Batch, Plan
from kernelmill.stages.run_stage import (
    answer_all,
    disk_errors_mention_journal,
    journal_path,
    open_journal,
    unanswered_error,
    usage,
    usage_lines,
)
from kernelmill.store import Output
from kernelmill.store.output import test_path


class WriterContext(NamedTuple):
    """What a writer is built from. It enters the resources it opens in `stack`."""

    stack: AsyncExitStack
    journal: JournalReader
    """Writable, except in a dry run."""
    stats: Stats
    control: Control


async def run(
    settings: SynthesizeSettings,
    open_writer: Callable[[WriterContext], Awaitable[Writer]],
    dry_run: Callable[[Batch[CandidateRequest], RolloutRunner, Plan], Estimate],
) -> StageResult:
    """Have candidates written and judged. Raises `Stopped` if some are unfinished."""
    if not settings.dry_run:
        needs_torch()  # before opening a source, so that it is reported before any download
    started = time.monotonic()
    output = Output(test_path(settings.output) if settings.test_mode else settings.output)
    journal_file = journal_path(STAGE, settings)
    output.refuse(journal_file, "the journal")
    stats_file = settings.stats
    if stats_file is not None:
        if settings.test_mode:
            stats_file = stats_file.with_name(f"{stats_file.stem}.test{stats_file.suffix}")
        output.refuse(stats_file, "the file for --stats")
        if stats_file.is_dir() or stats_file.resolve() == journal_file.resolve():
            raise OutputError(f"{stats_file} cannot be the file for --stats: name another")
    builder = PromptBuilder(settings)
    source = RolloutSource(settings.sets())
    for file in source.files:
        output.refuse(file.path, "the source")
    stats, control = Stats(), Control()
    async with AsyncExitStack() as stack:
        stack.enter_context(disk_errors_mention_journal(journal_file))
        if not settings.dry_run:
            stack.enter_context(output)
        journal = stack.enter_context(open_journal(journal_file, settings.dry_run))
        grader = Grader(settings, journal)
        if not settings.dry_run:
            stack.enter_context(grader)  # it may raise; do this before any paid call
        writer = await open_writer(WriterContext(stack, journal, stats, control))
        rollouts = RolloutRunner(writer, grader, builder.again, settings.turns, control)

        def render(problem: CandidateRequest, state: RolloutState) -> bytes:
            return row.evals_row(
                problem, state, settings.export, settings.reasoning_field, grader.reward, writer.name, builder.version
            )  # fmt: skip

        stage = SynthesizeStage(settings, builder, rollouts, render)
        batch = Batch(source, stage, rollouts, stats, control, settings)
        with control.signals():
            plan = await batch.plan()
            if settings.dry_run:
                return StageResult(estimate=dry_run(batch, rollouts, plan))
            _say_plan(batch, plan, settings, writer.name)
            if plan.pending:
                starting = asyncio.create_task(grader.start())
                # What prevents a start is raised again when the first answer is judged.
                starting.add_done_callback(lambda task: task.cancelled() or task.exception())
            await answer_all(batch, plan, settings, STAGE, priced=settings.teacher is None)
            await batch.write(plan, output)
        statistics = stage.statistics
        statistics.pending = plan.asked - statistics.rollouts - statistics.too_long
        details = {
            "by": writer.name,
            "source": source.origin,
            "prompts": {prompt.file.name: prompt.sha256 for prompt in builder.prompts},
            "prompt_version": builder.version,
            "seconds": round(time.monotonic() - started, 3),
            "reward": grader.reward,
            "device": grader.options.device,
            "judged": grader.judged,
            "usage": usage(stats),
            "statistics": statistics.report(),
        }
        rows = output.commit(STAGE, plan.rows, _config(settings), details)["rows"]
        if stats_file is not None:
            _write_stats(stats_file, statistics)
        print(f"{STAGE} by {writer.name}")
        lines = [("rollouts", f"{plan.rows:,}"), ("kept", f"{output.kept:,}")]
        lines += [("rejected", f"{number:,}  {kind}") for kind, number in output.reasons.most_common()]
        lines += statistics.summary()
        lines.append(("reward", grader.reward))
        lines += usage_lines(stats) if settings.teacher is None else []
        lines += [("time", duration(time.monotonic() - started)), *output.listing()]
        for label, value in lines:
            print(f"{label:<12}{value}")
        if batch.pending_after:
            raise unanswered_error(batch.pending_after, f" (see {output.rejected_path})")
        if troubled := statistics.statuses["INFRA_ERROR"]:
            raise Stopped(
                f"{troubled:,} candidates could not be judged (INFRA_ERROR): run the same command again"
            )
        cost = stats.cost if stats.calls else 0.0
        return StageResult(
            (output.path, output.manifest_path), rows["in"], rows["out"], rows["rejected"], cost
        )


def _say_plan(batch: Batch[CandidateRequest], plan: Plan, settings: SynthesizeSettings, by: str) -> None:
    test = " (test mode)" if settings.test_mode else ""
    say(
        f"{plan.rows:,} rollouts{test}: {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {by}; "
        f"{batch.stats.answered_before:,} already finished, {len(plan.pending):,} to do"
    )


def _config(settings: SynthesizeSettings) -> dict[str, Any]:
    """Return the settings to save: those with a command line flag, and `env` if it is set."""
    fields = SynthesizeSettings.model_fields
    unknown = {name for name, field in fields.items() if field.description is None} - {"sampling", "prices"}
    return {
        name: value
        for name, value in public(settings).items()
        if name not in unknown or (name == "env" and value)
    }


def _write_stats(path: Path, statistics: Statistics) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(encoded(statistics.report()))
