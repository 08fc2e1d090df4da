"""The evaluator behind the rollouts: each content is judged once, and its verdict is stored in the journal.

A verdict is stored under the hash of everything that determines it, before it is used, so a killed run judges
nothing twice. INFRA_ERROR is a failure of the evaluator: it is remembered for this run only, and the next run
judges again. An unusable reference is a verdict like any other (UNSUPPORTED). A text without any code is not
sent to the evaluator, which would report syntax errors in prose.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from pathlib import Path

from kernelmill.base.answers import no_code
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.verdict import Status, Verdict
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.generate.synthesize.writer import WriterAnswer
from kernelmill.llm.journal import Journal, JournalReader
from kernelmill.sandbox.gpu_vendors import visible_gpus
from kernelmill.settings.options import processors


def options_of(settings: SynthesizeSettings) -> Options:
    """Return the evaluator's options.

    `auto` is resolved here, so that verdicts of different devices never mix.
    """
    device = settings.device
    if device == "auto":
        device = "cuda" if visible_gpus() else "cpu"
    return Options(
        device=device,
        tf32=settings.tf32,
        timeout=settings.eval_timeout,
        call_timeout=min(Options.call_timeout, settings.eval_timeout),
    )


class Grader:
    """Judges answers. Entering it starts the evaluator; `known` works without."""

    def __init__(self, settings: SynthesizeSettings, journal: JournalReader) -> None:
        self.options = options_of(settings)
        self.reward = settings.reward or ("speedup" if self.options.device == "cuda" else "correct")
        self.workers = processors(settings.workers)
        self._journal = journal
        self._evaluator: Evaluator | None = None
        self._slots = asyncio.Semaphore(self.workers * (2 if self.options.device == "cuda" else 1))
        self._under_way: dict[str, asyncio.Event] = {}
        self._troubled: dict[str, Verdict] = {}
        self.judged = 0

    def __enter__(self) -> Grader:
        self._evaluator = Evaluator(self.options, workers=self.workers)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._evaluator is not None
        self._evaluator.close()

    async def start(self) -> None:
        """Start the evaluator's processes now, while the first answers are written."""
        assert self._evaluator is not None, "open it first"
        await self._evaluator.start()

    def known(self, problem: CandidateRequest, written: WriterAnswer) -> Verdict | None:
        """Return the verdict, if there is one."""
        if written.no_candidate:
            verdict = _unread("UNSUPPORTED", written.fault)
            verdict.feedback = ""  # no model will read it
            return verdict
        if fault := written.fault or no_code(written.content):
            return _unread("FORMAT_ERROR", fault)
        key = self._pair(problem, written).key(self.options)
        stored = self._journal.fact(f"verdict:{key}")
        if stored is not None:
            return Verdict.from_dict(json.loads(stored))
        return self._troubled.get(key)

    async def grade(self, problem: CandidateRequest, written: WriterAnswer) -> None:
        """Judge an answer; `known` returns the verdict afterwards.

        Concurrent calls for the same content are judged once.
        """
        pair = self._pair(problem, written)
        key = pair.key(self.options)
        if (other := self._under_way.get(key)) is not None:
            await other.wait()
            return
        done = self._under_way[key] = asyncio.Event()
        try:
            async with self._slots:
                verdict = await self._judge(pair)
            if verdict.status == "INFRA_ERROR":
                self._troubled[key] = verdict
            else:
                assert isinstance(self._journal, Journal)
                await self._journal.add_fact(f"verdict:{key}", verdict.to_json())
            self.judged += 1
        finally:
            del self._under_way[key]
            done.set()

    def rewarded(self, verdict: Verdict) -> float | None:
        """Return the reward, or None if it is masked."""
        return rewards.compute(verdict, [self.reward])[self.reward]

    def _pair(self, problem: CandidateRequest, written: WriterAnswer) -> Pair:
        return Pair("", problem.module.python_code, written.content, problem.module.entry_point)

    async def _judge(self, pair: Pair) -> Verdict:
        assert self._evaluator is not None, "open it first"
        try:
            return await self._evaluator.evaluate(pair)
        except Exception as error:  # noqa: BLE001  a bug in the evaluator costs one row, which reports it
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
            return _unread("INFRA_ERROR", said)


def _unread(status: Status, error: str) -> Verdict:
    """Build a verdict for which the evaluator was not called, or failed."""
    verdict = Verdict(id="", status=status, tier="static", env=dict(environment()), error=error)
    verdict.cost = {"stages": {}, "wall_s": 0.0}
    verdict.rewards = rewards.compute(verdict)
    verdict.feedback = feedback(verdict)
    return verdict
