"""Problems as rows, one for each rollout, from one or several sources.

A row that holds a module is read by `kernelmill.problems.module_rows`: from KernelBook, KernelBench, an evals
row or a problem file. Nothing is executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from kernelmill.base.rows import Drop, Row
from kernelmill.base.task_rules import rules
from kernelmill.errors import SourceError
from kernelmill.generate.synthesize.settings import ProblemSource, SynthesizeSettings
from kernelmill.llm.engine import Messages
from kernelmill.llm.prompts import Prompt
from kernelmill.problems.benchmark_rows import is_benchmark, is_benchmark_set
from kernelmill.problems.module_rows import Module, ModuleReader
from kernelmill.settings.config import secret
from kernelmill.store import Source, open_source


class RolloutRow(Row, frozen=True, gc=False):
    """A problem's row, repeated for each requested candidate."""

    example_id: int = 0
    """Position of the problem across all sources."""
    sample: int = 0
    samples: int = 1
    task: str = ""
    benchmark: bool = False


class CandidateRequest(NamedTuple):
    """The input of a writer: one candidate to write."""

    example_id: int
    sample: int
    samples: int
    """The number of candidates requested for this problem."""
    task: str
    module: Module
    messages: Messages
    """The prompt."""
    benchmark: bool = False
    """Whether it belongs to a benchmark: answers to it must stay out of training data."""

    @property
    def key(self) -> str:
        """A hash of prompt, problem and sample, independent of position."""
        text = json.dumps([self.messages, self.module.python_code, self.module.entry_point, self.sample])
        return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


class RolloutSource(Source):
    """The problems of all sets, in order, each repeated once for every rollout."""

    def __init__(self, sets: list[ProblemSource]) -> None:
        self._sets = [(one, open_source(one.id, one.args.split, secret("HF_TOKEN"))) for one in sets]
        sources = [source for _, source in self._sets]
        origin = sources[0].origin
        if len(sources) > 1:
            origin = {"kind": "several", "sources": [source.origin for source in sources]}
        names = ", ".join(source.name for source in sources)
        super().__init__(names, [file for source in sources for file in source.files], origin)

    def rows(self) -> Iterator[RolloutRow]:
        index = example = 0
        for one, source in self._sets:
            benchmark = is_benchmark_set(source.origin)
            end = None if one.num_examples < 0 else one.skip_first + one.num_examples
            for row in islice(source.rows(), one.skip_first, end):
                for sample in range(one.rollouts_per_example):
                    yield RolloutRow(
                        index, row.where, row.raw, row.fault, example, sample, one.rollouts_per_example, one.task,
                        benchmark or is_benchmark(row),
                    )  # fmt: skip
                    index += 1
                example += 1
        if not index:
            raise SourceError(f"{self.name}: no problem is left after skip_first")


class PromptBuilder:
    """Builds the prompt of each problem."""

    def __init__(self, settings: SynthesizeSettings) -> None:
        self._prompt = Prompt("synthesize", settings.prompt)
        # A user's own template is the whole prompt.
        self._system = None if settings.prompt else Prompt("synthesize_system")
        self.again = Prompt("synthesize_again")
        self.prompts = [prompt for prompt in (self._system, self._prompt, self.again) if prompt]
        texts = "\n".join(prompt.sha256 for prompt in self.prompts)
        self.version = hashlib.sha256(texts.encode()).hexdigest()[:16]
        """A hash of all templates together."""
        self._hardware = settings.hardware
        self._rules = rules(settings.tf32)
        self._modules = ModuleReader()

    def take(self, row: Row) -> CandidateRequest | Drop:
        assert isinstance(row, RolloutRow)
        module = self._modules.take(row)
        if isinstance(module, Drop):
            return module
        return CandidateRequest(
            row.example_id, row.sample, row.samples, row.task, module, self._messages(module), row.benchmark
        )

    def _messages(self, module: Module) -> Messages:
        text = self._prompt.render(
            problem_name=module.problem_name,
            module_name=module.module_name,
            class_name=module.class_name,
            python_code=module.python_code,
            hardware=self._hardware,
            **self._rules,
        )
        system = [{"role": "system", "content": self._system.render()}] if self._system else []
        return [*system, {"role": "user", "content": text}]
