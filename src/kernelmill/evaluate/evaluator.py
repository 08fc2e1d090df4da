"""Judge a candidate against a reference: static checks, then the interpreter, the compiler and the GPU.

This process runs no untrusted code and does not import torch. It builds the verdict from the judge's record,
computes rewards and feedback, and accounts for the cost of each stage.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from functools import partial
from pathlib import Path
from types import TracebackType

from kernelmill.base.missing import require
from kernelmill.errors import ConfigError
from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.compile.known_reports import KnownReports
from kernelmill.evaluate.compile.targets import TARGETS
from kernelmill.evaluate.evaluation import Evaluation
from kernelmill.evaluate.gpu.gpu_judges import GpuJudges
from kernelmill.evaluate.languages import LANGUAGES
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.progress import Now
from kernelmill.evaluate.servers import compiler, interpreter
from kernelmill.evaluate.trace import saving
from kernelmill.evaluate.verdict import (
    Status,
    Verdict,
)
from kernelmill.runner import Threads
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.gpu_vendors import visible_gpus
from kernelmill.sandbox.pool import Pool

_RETRIES = 1
_BEFORE_A_GPU_S = 15.0
_REPLAY_S = 0.05
"""For repeated calls in the interpreter."""
_ASK_A_GPU: tuple[Status, ...] = ("PASSED", "UNSUPPORTED", "TIMEOUT")
"""Statuses after which a GPU judges. A candidate that times out in the interpreter may finish on a GPU."""
_NO_COMPILE: tuple[Status, ...] = ("HACK", "PARSE_ERROR", "FORMAT_ERROR")


class Evaluator:
    """Warm processes that judge candidates, `workers` at a time.

    `async with Evaluator() as evaluator: await evaluator.evaluate(pair)`. Safe to use from several tasks of
    one event loop. Each process of a pool needs its own.
    """

    def __init__(
        self,
        options: Options | None = None,
        workers: int | None = None,
        per_gpu: int = 8,
        traces: Path | None = None,
    ) -> None:
        self.options = options or Options()
        self.traces = traces
        """A folder for the programs of the candidates that are judged (`trace.saving`)."""
        self.workers = workers or max(1, (os.cpu_count() or 2))
        self._running: dict[int, Evaluation] = {}
        """Candidates in progress, by `id()`."""
        needs_torch()
        for name in self.options.targets:
            TARGETS.find(name)  # report a wrong name before anything runs
        self._language = LANGUAGES.find(self.options.language)
        self._interpreters = Pool(partial(interpreter, self.options, self._language, self.workers))
        self._compilers = Pool(partial(compiler, self.options, self._language, self.workers))
        self._known_reports = KnownReports()
        self.tier = self.options.tier or ("gpu_timed" if self._wants_gpu() else "interpreter")
        self._gpu_judges = (
            [GpuJudges(device, self.options, self._language, per_gpu) for device in self._gpus()]
            if self.tier.startswith("gpu")
            else []
        )

    def _wants_gpu(self) -> bool:
        auto = self.options.device == "auto" and self._language.gpu is not None
        return self.options.device == "cuda" or (auto and bool(visible_gpus()))

    def _gpus(self) -> list[int]:
        if self._language.gpu is None:
            raise ConfigError(
                f"candidates in {self.options.language} cannot be judged on a GPU: take device cpu"
            )
        seen = visible_gpus()
        wanted = list(self.options.devices) or seen
        absent = [device for device in wanted if device not in seen]
        if self.options.device == "cpu" or absent or not wanted:
            what = f"GPU {absent[0]}" if absent else "a GPU"
            raise ConfigError(
                f"tier {self.tier} needs {what}, and there is none here (seen: {seen or 'none'})"
            )
        return wanted

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Evaluator:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        servers: list[Pool | GpuJudges] = [self._interpreters, self._compilers, *self._gpu_judges]
        for server in servers:
            server.close()

    async def start(self) -> list[str]:
        """Start all servers in parallel; otherwise the first pair starts them one by one.

        Returns `what_is_missing`.
        """
        usual: list[Sandbox | GpuJudges] = [
            self._interpreters.get({}),
            self._compilers.get({}),
            *self._gpu_judges,
        ]
        missing = await asyncio.gather(*(asyncio.to_thread(server.what_is_missing) for server in usual))
        return list(dict.fromkeys(line for lines in missing for line in lines))

    def what_is_missing(self) -> list[str]:
        """The sandbox protections that this machine does not support."""
        return self._interpreters.get({}).what_is_missing()

    async def evaluate(self, pair: Pair) -> Verdict:
        """Judge one candidate. Never raises for what a candidate or a reference does."""
        evaluation = Evaluation(pair, self.options, wants_trace=self.traces is not None)
        self._running[id(evaluation)] = evaluation
        try:
            if not self._decided_statically(evaluation):
                await self._run_phases(evaluation)
        finally:
            del self._running[id(evaluation)]
        if self.traces is not None and evaluation.trace is not None:
            saving.write(self.traces, pair.id, pair.key(self.options), evaluation.trace)
        return evaluation.finished()

    def static_verdict(self, pair: Pair) -> Verdict | None:
        """The verdict if the static checks decide it: no code, a syntax error, a static hack.

        None if it has to run.
        """
        evaluation = Evaluation(pair, self.options)
        return evaluation.finished() if self._decided_statically(evaluation) else None

    def doing(self) -> Now:
        """Which candidates are in progress, and what the servers and GPUs do."""
        candidates = [(evaluation.pair.id, *evaluation.phase) for evaluation in self._running.values()]
        elsewhere = [*self._interpreters.doing(), *self._compilers.doing()]
        return Now(
            candidates, {gpu_judges.device: gpu_judges.doing() for gpu_judges in self._gpu_judges}, elsewhere
        )

    def _decided_statically(self, evaluation: Evaluation) -> bool:
        """Run the static checks. Return True if nothing else has to run."""
        verdict = evaluation.verdict
        if not evaluation.extract_code() or (evaluation.static() and not self.options.audit):
            return True
        if self.tier == "static" and verdict.status == "PASSED":
            verdict.set_status("UNSUPPORTED")
            verdict.error = "static checks only (--tier static)"
        return self.tier == "static"

    async def _run_phases(self, evaluation: Evaluation) -> None:
        verdict = evaluation.verdict
        if evaluation.report.class_name:
            evaluation.enter("interpreter")
            await self._interpret(evaluation)
        if verdict.status not in _NO_COMPILE and self._compiles(evaluation):
            evaluation.enter("compiler")
            await self._compile(evaluation)
        if (
            self._gpu_judges
            and evaluation.report.class_name
            and (verdict.status in _ASK_A_GPU or evaluation.failed_shrunk())
        ):
            gpu_judges = min(self._gpu_judges, key=lambda one: (one.unhealthy, one.waiting))
            evaluation.enter(f"GPU {gpu_judges.device}")
            await gpu_judges.judge(evaluation, timed=self.tier == "gpu_timed")

    async def _interpret(self, evaluation: Evaluation) -> None:
        seed = secrets.randbits(62) if self.options.seed is None else self.options.seed
        request = {
            "reference": evaluation.pair.reference,
            "candidate": evaluation.code,
            "class": evaluation.report.class_name,
            "entry_point": evaluation.pair.entry_point,
            "seed": seed,
            "audit": self.options.audit,
            "probes": "before_gpu" if self._gpu_judges and not self.options.audit else "all",
            "tf32": self.options.tf32,
            "traces": evaluation.wants_trace,
            "limits": {
                "total_s": self._interpreter_s(),
                "call_s": self.options.call_timeout,
                "replay_s": _REPLAY_S,
            },
            "label": evaluation.pair.id,
        }
        server = self._interpreters.get(evaluation.environment("small"))
        reply = await server.run(request)
        for _ in range(_RETRIES):
            if not _ours(reply):
                break
            reply = await server.run(request)
        missing = await asyncio.to_thread(server.what_is_missing)
        evaluation.verdict.task["seed"] = seed
        evaluation.verdict.env["sandbox_missing"] = missing
        evaluation.interpreted(reply)

    def _interpreter_s(self) -> float:
        """The interpreter's time limit.

        It is shorter if a GPU judges next, which tries what the interpreter had no time for.
        """
        gpu_next = self._gpu_judges and not self.options.audit
        return min(self.options.timeout, _BEFORE_A_GPU_S) if gpu_next else self.options.timeout

    def _compiles(self, evaluation: Evaluation) -> bool:
        """Whether to cross-compile.

        Not if a GPU judges a task that was shrunk: it compiles the launches at the own size.
        """
        other_size = bool(self._gpu_judges) and bool(evaluation.verdict.task.get("shrunk"))
        return (
            bool(self._language.compiler and evaluation.kernels and self.options.targets) and not other_size
        )

    async def _compile(self, evaluation: Evaluation) -> None:
        targets = list(self.options.targets)
        environment, seconds = evaluation.environment("small"), self.options.compile_timeout
        kernels, launches = evaluation.kernels, evaluation.signatures
        compile_it = partial(
            compiling.cross_compile,
            self._compilers.get(environment),
            kernels,
            launches,
            targets,
            seconds,
            evaluation.pair.id,
        )
        given = [environment, kernels, launches, targets, seconds]
        evaluation.compiled(await self._known_reports.get(given, compile_it))


def _ours(reply: Reply) -> bool:
    """Whether a failure is likely the machine's, and worth a retry."""
    return reply["kind"] == "crashed" and "torn" not in reply["message"]


def needs_torch() -> None:
    """Raise `ConfigError` if a package that judging needs is not installed."""
    require("evaluating", "torch", "triton", "numpy", extra="eval")


def evaluate(
    reference: str, candidate: str, options: Options | None = None, entry_point: str | None = None
) -> Verdict:
    """Judge one candidate, with processes of its own.

    Starting and stopping them takes some seconds; `Evaluator` keeps them warm. Also works if an event loop is
    running, as in a notebook. That loop is blocked meanwhile.
    """

    evaluator = Evaluator(options, workers=1)

    async def judged(pair: Pair) -> Verdict:
        async with evaluator:
            return await evaluator.evaluate(pair)

    def judge(pair: Pair) -> Verdict:
        return asyncio.run(judged(pair))

    pair = Pair("1", reference, candidate, entry_point)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return judge(pair)
    with Threads(judge, 1, evaluator) as thread:
        return thread.call(pair)
