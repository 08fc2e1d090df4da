"""`kernelmill specs`: write a task specification for each module, with a model or from a trace.

Output rows are `prompt, module_name, python_code`, then the source's columns (`triton_code`, `uuid` and
others) where it has them, then `writer` and `checked`. Sources are KernelBook rows, evals rows (their
`info`), KernelBench rows (`code`) and problem files. Every specification must pass `specs.checks`. A model is
told what was wrong and asked again.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from kernelmill.base.missing import require
from kernelmill.base.rows import Row, SyntheticRow
from kernelmill.curate.specs.checks import check_spec, clean_spec
from kernelmill.curate.specs.specification import Specification
from kernelmill.curate.specs.writer import write_spec
from kernelmill.errors import ConfigError, SourceError
from kernelmill.flow import StageResult
from kernelmill.llm.engine import Asking, BadAnswer, Messages
from kernelmill.llm.prompts import Prompt
from kernelmill.llm.structured import Structured
from kernelmill.problems.analysis import Analysis, FactStore
from kernelmill.problems.facts import ModuleFacts
from kernelmill.problems.module_rows import Module, ModuleReader
from kernelmill.settings.fields import SpecsSettings
from kernelmill.stages.run_stage import Context, StageSetup, run_answering_stage


class Specs:
    """The stage: reads the module of a row and builds the output row."""

    def __init__(self, threshold: float | None) -> None:
        self.take = ModuleReader(threshold).take

    def name(self, item: Module) -> str:
        return item.problem_name

    def finish(self, row: Row, item: Module, columns: dict[str, Any]) -> bytes:
        given = item.given
        return msgspec.json.encode(
            SyntheticRow(
                module_name=item.module_name,
                python_code=item.python_code,
                triton_code=given.triton_code,
                uuid=given.uuid,
                name=given.name,
                level=given.level,
                problem_id=given.problem_id,
                **columns,
            )
        )


class SpecQuestions(Asking[Module]):
    """Builds the questions for a model and checks its specifications."""

    def __init__(self, settings: SpecsSettings, facts: FactStore) -> None:
        self._prompt = Prompt("specs", settings.prompt)
        self._again = Prompt("specs_again")
        self._facts = facts
        self._model = settings.model
        self.structured = Structured("specs", Specification) if settings.answers == "json" else None
        self.prompts = [self._prompt, self._again, *([self.structured.prompt] if self.structured else [])]

    def messages(self, item: Module) -> Messages:
        text = self._prompt.render(
            module_name=item.module_name, problem_name=item.problem_name, python_code=item.python_code
        )
        return [{"role": "user", "content": self.structured.ask(text) if self.structured else text}]

    async def prepare(self, item: Module) -> None:
        with contextlib.suppress(SourceError):  # recorded as a fact, and reported by `fault`
            await self._facts.find(item)

    def fault(self, item: Module) -> str | None:
        found = self._facts.known(self._facts.key(item))
        return found.error if found is not None else None

    async def parse(self, item: Module, text: str) -> dict[str, Any]:
        try:
            facts = await self._facts.find(item)
        except SourceError as error:
            raise BadAnswer(f"the module cannot be read: {error}") from None
        spec = clean_spec(text)
        if self.structured:
            spec = self.structured.read(spec).text()
        return _checked(item, spec, facts, f"llm:{self._model}")

    def again(self, messages: Messages, text: str, reason: str) -> Messages:
        feedback = self._again.render(reason=reason)
        return [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": feedback}]


def _checked(item: Module, text: str, facts: ModuleFacts, writer: str) -> dict[str, Any]:
    check_spec(text, item.class_name, facts.source, facts.trace)
    checked = "all" if facts.trace is not None else f"all but shapes and dtypes ({facts.trace_error})"
    return {"prompt": text, "writer": writer, "checked": checked}


def _write_static(item: Module, facts: ModuleFacts) -> dict[str, Any]:
    if facts.trace is None:
        raise BadAnswer(
            f"the module could not be traced, so there is nothing to write from ({facts.trace_error})"
        )
    return _checked(item, write_spec(item.class_name, facts.source, facts.trace), facts, "static")


async def specs(settings: SpecsSettings) -> StageResult:
    """Rows with a module in (KernelBook, KernelBench, evals); one specification row for each module out."""
    by_model = settings.writer == "llm"
    if not by_model and not settings.trace:
        raise ConfigError("the static writer writes from a trace: leave --no-trace out")
    if not by_model:
        require("the static writer, which traces modules,", "torch", extra="eval")

    def setup(context: Context) -> StageSetup[Module]:
        stage = Specs(settings.threshold)
        if by_model:
            questions = SpecQuestions(settings, context.facts)
            model = context.model(questions, questions.structured)
            by = f"llm:{settings.model}"
            return StageSetup(stage, model, by, questions.prompts, expected_output_tokens=1500)
        return StageSetup(stage, Analysis(context.facts, _write_static, context.stats), "static")

    return await run_answering_stage("specs", settings, setup, model=by_model, facts=True)
