"""`kernelmill rate`: keep rows with a good reward and rate the difficulty of each one's task.

Output rows are the input rows, byte for byte, with `difficulty`, `evaluation_raw` and `rater` added. Two
raters share one interface: a model, and program analysis (`static_rater`). Rows at or below the threshold,
unreadable rows and rows without a usable rating go to the rejected file, each with its reason. Does not look
at the candidate's kernel: the difficulty is that of the task.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from kernelmill.base.rows import Drop, EvalsReader, Row, with_columns
from kernelmill.curate.difficulty import LEVELS, Rating, read_difficulty
from kernelmill.curate.static_rater import rate_facts
from kernelmill.curate.thoughts import strip_thoughts
from kernelmill.errors import ConfigError, SourceError
from kernelmill.flow import StageResult
from kernelmill.llm.engine import Asking, Done, Messages
from kernelmill.llm.prompts import Prompt
from kernelmill.llm.structured import Structured
from kernelmill.problems.analysis import Analysis
from kernelmill.problems.facts import ModuleFacts
from kernelmill.settings.config import secret
from kernelmill.settings.fields import RateSettings
from kernelmill.stages.answering import Answerer, Batch
from kernelmill.stages.run_stage import (
    Context,
    StageSetup,
    answer_all,
    open_endpoint,
    opened,
    run_answering_stage,
    unanswered_error,
)
from kernelmill.store import open_source


class Task(NamedTuple):
    """The part of a row that a rater sees."""

    module_name: str
    """Class name."""
    python_code: str
    problem_name: str
    """Name of the problem, because in KernelBench's style every class is `Model`."""

    @property
    def entry_point(self) -> str:
        return self.module_name


class Rate:
    """The stage: applies the threshold before rating and adds the columns after it."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self.read = EvalsReader()
        self.levels: Counter[str] = Counter()

    def take(self, row: Row) -> Task | Drop:
        evals = self.read(row)
        if not evals.reward > self._threshold:
            return Drop(
                f"reward {evals.reward:g} is not above {self._threshold:g}",
                f"reward not above {self._threshold:g}",
            )
        return Task(evals.info.module_name, evals.info.python_code, evals.display_name)

    def name(self, item: Task) -> str:
        return item.problem_name

    def finish(self, row: Row, item: Task, columns: dict[str, Any]) -> bytes:
        self.levels[columns["difficulty"]] += 1
        return with_columns(row.raw, columns)


class RatingQuestions(Asking[Task]):
    """Builds the rating questions for a model and reads its answers."""

    def __init__(self, settings: RateSettings) -> None:
        self._prompt = Prompt("rate", settings.prompt)
        self._model = settings.model
        self.structured = Structured("rate", Rating) if settings.answers == "json" else None
        self.prompts = [self._prompt, *([self.structured.prompt] if self.structured else [])]

    def messages(self, item: Task) -> Messages:
        question = self._prompt.render(**item._asdict())
        return [{"role": "user", "content": self.structured.ask(question) if self.structured else question}]

    async def parse(self, item: Task, text: str) -> dict[str, Any]:
        if self.structured:
            rating = self.structured.read(strip_thoughts(text))
            return _columns(rating.difficulty, rating.text(), f"llm:{self._model}")
        return _columns(read_difficulty(text), text, f"llm:{self._model}")


def _columns(difficulty: str, evaluation: str, rater: str) -> dict[str, Any]:
    return {"difficulty": difficulty, "evaluation_raw": evaluation, "rater": rater}


def _rate_from_facts(item: Task, facts: ModuleFacts) -> dict[str, Any]:
    rating = rate_facts(facts)
    return _columns(rating.difficulty, rating.evidence, "static")


def _static_rater(context: Context) -> Answerer[Task]:
    return Analysis(context.facts, _rate_from_facts, context.stats)


async def rate(settings: RateSettings) -> StageResult:
    """Evals rows in; the rows above the threshold out, with `difficulty`, `evaluation_raw` and `rater`."""
    if settings.compare:
        await compare(settings)
        return StageResult()
    by_model = settings.rater == "llm"

    def setup(context: Context) -> StageSetup[Task]:
        stage = Rate(settings.threshold)
        questions = RatingQuestions(settings) if by_model else None
        return StageSetup(
            stage,
            context.model(questions, questions.structured) if questions else _static_rater(context),
            by=f"llm:{settings.model}" if by_model else "static",
            prompts=questions.prompts if questions else [],
            summary=lambda: [("difficulty", _levels(stage.levels)), *_odd(stage)],
            details=lambda: {
                "difficulty": {level: stage.levels[level] for level in LEVELS},
                "odd": stage.read.oddities,
            },
        )

    return await run_answering_stage("rate", settings, setup, model=by_model, facts=not by_model)


def _levels(levels: Counter[str]) -> str:
    return ", ".join(f"{level} {levels[level]:,}" for level in LEVELS)


def _odd(stage: Rate) -> list[tuple[str, str]]:
    return [("odd", f"{number:,} rows: {oddity}") for oddity, number in stage.read.oddities.items()]


async def compare(settings: RateSettings) -> None:
    """Run both raters on the same rows and print their agreement. Writes no rows."""
    if settings.dry_run:
        raise ConfigError("--compare and --dry-run do not go together: dry-run each rater by itself")
    stage = Rate(settings.threshold)
    source = open_source(settings.source, settings.split, secret("HF_TOKEN"))
    table: Counter[tuple[str, str]] = Counter()
    unrated = 0
    async with opened("rate", settings, open_endpoint(settings), facts=True) as context:
        questions = RatingQuestions(settings)
        raters: dict[str, Answerer[Task]] = {
            "llm": context.model(questions, questions.structured),
            "static": _static_rater(context),
        }
        failed = 0
        with context.control.signals():
            for name, rater in raters.items():
                batch = Batch(source, stage, rater, context.stats, context.control, settings)
                plan = await batch.plan()
                context.stats.done = context.stats.failed = 0
                await answer_all(batch, plan, settings, f"rate ({name})", priced=name == "llm")
                failed += batch.pending_after
        for task in batch.items():
            llm, static = [await rater.outcome(task, rater.key(task)) for rater in raters.values()]
            if isinstance(llm, Done) and isinstance(static, Done):
                table[llm.columns["difficulty"], static.columns["difficulty"]] += 1
            else:
                unrated += 1
    if not table:
        raise SourceError(f"{settings.source}: no row was rated by both raters")
    _print_comparison(table, unrated, f"llm:{settings.model}")
    if failed:
        raise unanswered_error(failed)


def cohens_kappa(table: Counter[tuple[str, str]]) -> float | None:
    """Agreement beyond chance; None if chance alone always agrees (both raters gave one level only)."""
    total = table.total()
    agreed = sum(table[level, level] for level in LEVELS) / total
    chance = sum(
        sum(table[level, other] for other in LEVELS) * sum(table[other, level] for other in LEVELS)
        for level in LEVELS
    ) / (total * total)
    return None if chance == 1 else (agreed - chance) / (1 - chance)


def _print_comparison(table: Counter[tuple[str, str]], unrated: int, model: str) -> None:
    shown = Table(title=f"rows by difficulty: {model} (down) and static (across)", title_justify="left")
    shown.add_column("")
    for level in LEVELS:
        shown.add_column(level, justify="right")
    for level in LEVELS:
        shown.add_row(level, *(f"{table[level, other]:,}" for other in LEVELS))
    console = Console(markup=False, highlight=False)
    console.print(shown)
    total = table.total()
    kappa = cohens_kappa(table)
    console.print(f"rated by both: {total:,} rows; {unrated:,} not rated by one of them")
    console.print(f"agreement: {sum(table[level, level] for level in LEVELS) / total:.1%}")
    console.print(f"Cohen's kappa: {'undefined (one level only)' if kappa is None else f'{kappa:.3f}'}")
