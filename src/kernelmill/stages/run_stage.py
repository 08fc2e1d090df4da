"""Run one stage whose rows need an answer: open everything, plan, answer, write, summarise."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

from kernelmill.base.control import Control, Stats
from kernelmill.base.terminal import count, duration, money, say
from kernelmill.errors import ConfigError, OutputError, Stopped, disk_fault
from kernelmill.flow import Estimate, StageResult
from kernelmill.llm.client import Endpoint
from kernelmill.llm.engine import Asking, Messages, Model
from kernelmill.llm.journal import Journal, JournalReader
from kernelmill.llm.prompts import Prompt
from kernelmill.llm.structured import Structured
from kernelmill.problems.analysis import FactStore
from kernelmill.problems.facts import TRACE_WORKER, torch_is_installed
from kernelmill.sandbox import Sandbox
from kernelmill.settings.base import Price, StageSettings
from kernelmill.settings.config import public, secret
from kernelmill.stages.answering import Answerer, Batch, Plan, Stage
from kernelmill.stages.progress import Progress
from kernelmill.store import Output, open_source
from kernelmill.store.output import test_path
from kernelmill.tokens.vocabulary import token_counter

Item = TypeVar("Item")


@dataclass
class Context:
    """The open resources that a stage is built from."""

    name: str
    settings: StageSettings
    journal: JournalReader
    stats: Stats
    control: Control
    facts: FactStore
    endpoint: Endpoint | None

    def model(self, asking: Asking[Item], structured: Structured[Any] | None = None) -> Model[Item]:
        assert self.endpoint is not None
        return Model(
            self.endpoint,
            asking,
            self.journal,  # type: ignore[arg-type]  # read-only in a dry run, which gets no answer to write
            self.name,
            self.stats,
            self.control,
            structured.response_format if structured else None,
        )


@dataclass
class StageSetup(Generic[Item]):
    """A stage, its answerer, and its part of the summary and the manifest."""

    stage: Stage[Item]
    answerer: Answerer[Item]
    by: str
    prompts: list[Prompt] = field(default_factory=list)
    summary: Callable[[], list[tuple[str, str]]] = list
    details: Callable[[], dict[str, Any]] = dict
    expected_output_tokens: int = 300


def open_endpoint(settings: StageSettings) -> Endpoint:
    """The endpoint, to be entered. Fails where its key is missing, except in a dry run, which calls nothing."""
    endpoint = Endpoint(settings)
    if not settings.dry_run:
        endpoint.check_key()
    return endpoint


@asynccontextmanager
async def opened(
    name: str, settings: StageSettings, endpoint: Endpoint | None, *, facts: bool
) -> AsyncIterator[Context]:
    """Open everything that must be open while a stage runs."""
    traced, sandbox = facts and settings.trace and torch_is_installed(), None
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(open_journal(journal_path(name, settings), settings.dry_run))
        if endpoint is not None and not settings.dry_run:
            await stack.enter_async_context(endpoint)
        if traced and not settings.dry_run:
            sandbox = stack.enter_context(Sandbox(TRACE_WORKER, timeout=settings.trace_timeout))
        store = FactStore(journal, sandbox, traced, settings.trace_timeout)
        yield Context(name, settings, journal, Stats(), Control(), store, endpoint)


def journal_path(name: str, settings: StageSettings) -> Path:
    return settings.journal or settings.output.parent / f"{name}.journal.sqlite"


def open_journal(path: Path, dry_run: bool) -> JournalReader:
    """The journal, to be entered. A dry run gets a read-only one, also if the file does not exist."""
    return JournalReader(path if path.exists() else None) if dry_run else Journal(path)


@contextmanager
def disk_errors_mention_journal(journal: Path) -> Iterator[None]:
    """Convert a disk error to an `OutputError` that names the journal with the answers so far."""
    try:
        yield
    except OSError as error:
        kept = f"what is answered is in the journal {journal}" if journal.exists() else ""
        if (said := disk_fault(error, kept)) is None:
            raise
        raise OutputError(said) from None


async def run_answering_stage(
    name: str,
    settings: StageSettings,
    setup: Callable[[Context], StageSetup[Item]],
    *,
    model: bool,
    facts: bool,
) -> StageResult:
    """Run a stage over its source, write its output and print the summary.

    `setup` builds the stage from the opened resources; `model` and `facts` say which it needs. Raises
    `Stopped` if some rows are not finished.
    """
    started = time.monotonic()
    path = test_path(settings.output) if settings.test_mode else settings.output
    output = Output(path)
    journal = journal_path(name, settings)
    # Before the source is opened: a missing key must not wait for a download.
    endpoint = open_endpoint(settings) if model else None
    source = open_source(settings.source, settings.split, secret("HF_TOKEN"))
    output.refuse(journal, "the journal")
    for file in source.files:
        output.refuse(file.path, "the source")
    async with AsyncExitStack() as stack:
        stack.enter_context(disk_errors_mention_journal(journal))
        if not settings.dry_run:
            stack.enter_context(output)
        context = await stack.enter_async_context(opened(name, settings, endpoint, facts=facts))
        stage_setup = setup(context)
        batch = Batch(
            source, stage_setup.stage, stage_setup.answerer, context.stats, context.control, settings
        )
        with context.control.signals():
            plan = await batch.plan()
            if settings.dry_run:
                return StageResult(estimate=_dry_run(batch, plan, stage_setup, context))
            _say_plan(plan, stage_setup, settings)
            await answer_all(batch, plan, settings, name, priced=context.endpoint is not None)
            await batch.write(plan, output)
        manifest = output.commit(
            name,
            plan.rows,
            public(settings),
            {
                "by": stage_setup.by,
                "source": source.origin,
                "prompts": {prompt.file.name: prompt.sha256 for prompt in stage_setup.prompts},
                "seconds": round(time.monotonic() - started, 3),
                "usage": usage(context.stats) if context.endpoint else None,
                **stage_setup.details(),
            },
        )
        _summary(name, manifest, stage_setup, context, output, time.monotonic() - started)
        if batch.pending_after:
            raise unanswered_error(batch.pending_after, f" (see {output.rejected_path})")
        rows, stats = manifest["rows"], context.stats
        return StageResult(
            (output.path, output.manifest_path),
            rows["in"],
            rows["out"],
            rows["rejected"],
            stats.cost if stats.calls else 0.0,
        )


def unanswered_error(number: int, where: str = "") -> Stopped:
    return Stopped(
        f"{number:,} questions could not be answered because of failing calls{where}: run the same command to ask them again"
    )


async def answer_all(
    batch: Batch[Item], plan: Plan, settings: StageSettings, what: str, *, priced: bool
) -> None:
    """Answer the pending questions. The message of a stop says how many are left."""
    stats = batch.stats
    if settings.max_cost is not None and stats.unknown_before:
        raise ConfigError(
            f"--max-cost cannot be kept: the cost of {stats.unknown_before:,} earlier answers of this job is not known"
        )
    try:
        await batch.answer(plan, Progress(stats, what, priced=priced))
    except Stopped as stopped:
        raise type(stopped)(
            f"{stopped}; {stats.done:,} answered in this run, {stats.total - stats.done:,} left: "
            "run the same command to resume"
        ) from None


def _say_plan(plan: Plan, stage_setup: StageSetup[Any], settings: StageSettings) -> None:
    test = " (test mode)" if settings.test_mode else ""
    different = len({key for key in plan.keys if key})
    answered = different - len(plan.pending)
    same = "" if different == plan.asked else f" ({different:,} different)"
    say(
        f"{plan.rows:,} rows{test}: {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {stage_setup.by}{same}; "
        f"{answered:,} answered already, {len(plan.pending):,} to do"
    )


def _dry_run(batch: Batch[Any], plan: Plan, stage_setup: StageSetup[Any], context: Context) -> Estimate:
    console = Console(markup=False, highlight=False, soft_wrap=True)
    endpoint = context.endpoint
    console.print(
        f"{plan.rows:,} rows in, {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {stage_setup.by}"
    )
    if endpoint is None or not isinstance(stage_setup.answerer, Model):
        console.print(f"{len(plan.pending):,} modules to analyse; no call is made and nothing is paid")
        return Estimate(plan.asked)
    counter = token_counter()
    tokens_in = sum(
        counter.count(message["content"])
        for _, item in batch.pending_items(plan)
        for message in stage_setup.answerer.messages(item)
    )
    console.print(f"calls: {len(plan.pending):,} to {endpoint.model} at {endpoint.name}")
    first = next(batch.items(), None)
    prompt = stage_setup.answerer.messages(first) if first is not None else None
    each, price = stage_setup.expected_output_tokens, endpoint.price
    estimate = estimated(plan.asked, len(plan.pending), tokens_in, each, price)
    say_estimate(console, estimate, each, prompt)
    return estimate


def estimated(rows: int, calls: int, tokens_in: int, each: int, price: Price | None) -> Estimate:
    """Estimate tokens and cost of calls; `each` is the expected number of tokens of an answer."""
    tokens_out = calls * each
    cost = (tokens_in * price.input + tokens_out * price.output) / 1e6 if price is not None else None
    return Estimate(rows, calls, tokens_in, tokens_out, cost if calls else 0.0)


def say_estimate(console: Console, estimate: Estimate, each: int, prompt: Messages | None) -> None:
    """Print a dry run's estimate of tokens and cost, and the first prompt."""
    tokens_in, tokens_out, cost = estimate.tokens_in, estimate.tokens_out, estimate.cost
    most = "at most " if estimate.at_most else ""
    console.print(
        f"estimated tokens: {most}{count(tokens_in)} in ({token_counter().how}), {count(tokens_out)} out ({each} an answer)"
    )
    hint = "" if cost is not None else " (give --price INPUT,OUTPUT, or [prices] in the config)"
    console.print(f"estimated cost: {most}{money(cost)}{hint}")
    if prompt is not None:
        console.print("the first prompt, whole:\n")
        for message in prompt:
            console.print(f"--- {message['role']} ---")
            console.print(message["content"])


def usage(stats: Stats) -> dict[str, Any]:
    return {
        "requests": stats.requests,
        "calls": stats.calls,
        "unusable_answers": stats.unusable,
        "seconds_asking": round(stats.seconds, 3),
        "tokens_in": stats.tokens_in,
        "tokens_out": stats.tokens_out,
        "tokens_reasoning": stats.tokens_reasoning,
        "calls_without_token_counts": stats.uncounted_calls,
        "cost_usd": stats.cost,
        "cost_of_earlier_runs_usd": stats.spent_before,
        "retries": dict(stats.retries.most_common()),
    }


def usage_lines(stats: Stats) -> list[tuple[str, str]]:
    """The lines of a summary about calls."""
    reasoning = f" ({count(stats.tokens_reasoning)} reasoning)" if stats.tokens_reasoning else ""
    earlier = f" (+ {money(stats.spent_before)} in earlier runs)" if stats.spent_before else ""
    answered = "" if stats.requests == stats.calls else f", {stats.calls:,} answered"
    unusable = f", {stats.unusable:,} unusable" if stats.unusable else ""
    return [
        ("calls", f"{stats.requests:,}, {stats.retries.total():,} retries{answered}{unusable}"),
        ("tokens", f"{count(stats.tokens_in)} in, {count(stats.tokens_out)} out{reasoning}"),
        ("cost", f"{money(stats.cost if stats.calls else 0.0)}{earlier}"),
    ]


def _summary(
    name: str,
    manifest: dict[str, Any],
    stage_setup: StageSetup[Any],
    context: Context,
    output: Output,
    seconds: float,
) -> None:
    rows, stats = manifest["rows"], context.stats
    lines = [("rows in", f"{rows['in']:,}"), ("kept", f"{rows['out']:,}")]
    lines += [("rejected", f"{number:,}  {kind}") for kind, number in output.reasons.most_common()]
    lines += stage_setup.summary()
    lines += usage_lines(stats) if context.endpoint is not None else []
    lines += [("time", duration(seconds)), *output.listing()]
    # Plain lines, not a table: paths must not be truncated at the width of the terminal.
    print(f"{name} by {stage_setup.by}")
    for label, value in lines:
        print(f"{label:<12}{value}")
