"""Judge a candidate against a reference: static checks, then the interpreter, the compiler and the GPU.

This process runs no untrusted code and does not import torch. It builds the verdict from the judge's record,
computes rewards and feedback, and accounts for the cost of each stage.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Literal

from kernelmill import __version__
from kernelmill.base.answers import NoAnswer, code_of
from kernelmill.base.extras import require
from kernelmill.errors import ConfigError
from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.compile.targets import DEFAULT, TARGETS
from kernelmill.evaluate.gpu.lane import Lane, visible_gpus
from kernelmill.evaluate.languages import LANGUAGES
from kernelmill.evaluate.progress import Now
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.servers import compiler, interpreter
from kernelmill.evaluate.static.examine import StaticReport, examine
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.verdict import (
    AT_A_SIZE,
    ON_GPU,
    Check,
    Flag,
    Grade,
    Perf,
    Result,
    Status,
    Tier,
    Verdict,
)
from kernelmill.runner import Threads
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.pool import Pool

_RETRIES = 1
_BEFORE_A_GPU_S = 15.0
_ASK_A_GPU: tuple[Status, ...] = ("PASSED", "UNSUPPORTED", "TIMEOUT")
"""Statuses after which a GPU judges. A candidate that times out in the interpreter may finish on a GPU."""
_NO_COMPILE: tuple[Status, ...] = ("HACK", "PARSE_ERROR", "FORMAT_ERROR")


@dataclass(frozen=True)
class Options:
    """How to evaluate. All fields but `devices` are part of a verdict's key."""

    device: Literal["cpu", "cuda", "auto"] = "auto"
    devices: tuple[int, ...] = ()
    """The GPUs to use, by number; empty for all visible ones. Any of them gives the same verdict."""
    tier: Tier | None = None
    """The last tier to run; None to go as far as the device allows."""
    audit: bool = False
    """Run every check and record it, also after the first failure."""
    tf32: bool = False
    """The task allows float32 products to round their operands."""
    timeout: float = 60.0
    """Seconds of own time that one candidate may run in one tier; waiting does not count.

    A candidate that needs more is inconclusive.
    """
    call_timeout: float = 10.0
    """Seconds of these for one call. On a GPU a call gets more if the reference takes long."""
    compile_timeout: float = 60.0
    """Processor seconds for compiling one kernel for one target."""
    memory_mb: int = 4096
    targets: tuple[str, ...] = DEFAULT
    """Names of `compile.targets.TARGETS`. Only a failure to compile for the first one decides the verdict."""
    baselines: tuple[str, ...] = ("compile",)
    """Baselines to time in addition to eager: compile, compile_max."""
    language: str = "triton"
    """A name of `languages.LANGUAGES`: what the candidates' kernels are written in."""
    seed: int | None = None
    """Seed to replay a verdict; None to draw a secret one for each candidate."""

    def key(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "device": self.device,
            "audit": self.audit,
            "tf32": self.tf32,
            "timeout": self.timeout,
            "call_timeout": self.call_timeout,
            "compile_timeout": self.compile_timeout,
            "memory_mb": self.memory_mb,
            "targets": list(self.targets),
            "baselines": list(self.baselines),
            "seed": self.seed,
            **{f"target {name}": origin for name in self.targets if (origin := TARGETS.origin(name))},
            **self._language_key(),
        }

    def _language_key(self) -> dict[str, Any]:
        """Empty for Triton, whose version is in `environment`."""
        if self.language == Options.language:
            return {}
        packages = LANGUAGES.find(self.language).packages
        return {
            "language": [self.language, LANGUAGES.origin(self.language)],
            "packages": {name: _version(name) for name in packages},
        }


@dataclass(frozen=True)
class Pair:
    """A candidate to judge. `candidate` is plain code or a model's whole completion."""

    id: str
    reference: str
    candidate: str
    entry_point: str | None = None

    def key(self, options: Options) -> str:
        """Hash of the content that decides the verdict: sources, options and versions."""
        parts = [self.reference, self.candidate, self.entry_point, options.key(), environment()]
        if offline_models.wanted_by(self.reference):
            parts.append(_version("transformers"))  # its models depend on the version
        text = json.dumps(parts, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"


@functools.cache
def environment() -> dict[str, Any]:
    """The versions that a verdict depends on."""

    found = {name: _version(name) for name in ("torch", "triton", "numpy")}
    return found | {"python": platform.python_version(), "evaluator": __version__}


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


class Evaluator:
    """Warm processes that judge candidates, `workers` at a time.

    `async with Evaluator() as evaluator: await evaluator.evaluate(pair)`. Safe to use from several tasks of
    one event loop. Each process of a pool needs its own.
    """

    def __init__(self, options: Options | None = None, workers: int | None = None, per_gpu: int = 8) -> None:
        self.options = options or Options()
        self.workers = workers or max(1, (os.cpu_count() or 2))
        self._works: dict[int, Work] = {}
        """Candidates in progress, by `id()`."""
        needs_torch()
        for name in self.options.targets:
            TARGETS.find(name)  # report a wrong name before anything runs
        self._language = LANGUAGES.find(self.options.language)
        self._interpreters = Pool(partial(interpreter, self.options, self._language, self.workers))
        self._compilers = Pool(partial(compiler, self.options, self._language, self.workers))
        self.tier = self.options.tier or ("gpu_timed" if self._wants_gpu() else "interpreter")
        self._lanes = (
            [Lane(device, self.options, self._language, per_gpu) for device in self._gpus()]
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
        servers: list[Pool | Lane] = [self._interpreters, self._compilers, *self._lanes]
        for server in servers:
            server.close()

    async def start(self) -> list[str]:
        """Start all servers in parallel; otherwise the first pair starts them one by one.

        Returns `what_is_missing`.
        """
        usual: list[Sandbox | Lane] = [self._interpreters.get({}), self._compilers.get({}), *self._lanes]
        missing = await asyncio.gather(*(asyncio.to_thread(server.what_is_missing) for server in usual))
        return list(dict.fromkeys(line for lines in missing for line in lines))

    def what_is_missing(self) -> list[str]:
        """The sandbox protections that this machine does not support."""
        return self._interpreters.get({}).what_is_missing()

    async def evaluate(self, pair: Pair) -> Verdict:
        """Judge one candidate. Never raises for what a candidate or a reference does."""
        work = Work(pair, self.options)
        self._works[id(work)] = work
        try:
            if not self._read(work):
                await self._stages(work)
        finally:
            del self._works[id(work)]
        return work.finished()

    def at_sight(self, pair: Pair) -> Verdict | None:
        """The verdict if the static checks decide it: no code, a syntax error, a static hack.

        None if it has to run.
        """
        work = Work(pair, self.options)
        return work.finished() if self._read(work) else None

    def doing(self) -> Now:
        """Which candidates are in progress, and what the servers and GPUs do."""
        candidates = [(work.pair.id, *work.stage) for work in self._works.values()]
        elsewhere = [*self._interpreters.doing(), *self._compilers.doing()]
        return Now(candidates, {lane.device: lane.doing() for lane in self._lanes}, elsewhere)

    def _read(self, work: Work) -> bool:
        """Run the static checks. Return True if nothing else has to run."""
        verdict = work.verdict
        if not work.read() or (work.static() and not self.options.audit):
            return True
        if self.tier == "static" and verdict.status == "PASSED":
            verdict.settle("UNSUPPORTED")
            verdict.error = "only its text was looked at"
        return self.tier == "static"

    async def _stages(self, work: Work) -> None:
        verdict = work.verdict
        if work.report.class_name:
            work.enter("interpreter")
            await self._interpret(work)
        if verdict.status not in _NO_COMPILE and self._compiles(work):
            work.enter("compiler")
            await self._compile(work)
        if self._lanes and work.report.class_name and (verdict.status in _ASK_A_GPU or work.failed_shrunk()):
            lane = min(self._lanes, key=lambda one: (one.sick, one.waiting))
            work.enter(f"GPU {lane.device}")
            await lane.judge(work, timed=self.tier == "gpu_timed")

    async def _interpret(self, work: Work) -> None:
        seed = secrets.randbits(62) if self.options.seed is None else self.options.seed
        request = {
            "reference": work.pair.reference,
            "candidate": work.code,
            "class": work.report.class_name,
            "entry_point": work.pair.entry_point,
            "seed": seed,
            "audit": self.options.audit,
            "brief": bool(self._lanes) and not self.options.audit,
            "tf32": self.options.tf32,
            "limits": {"total_s": self._interpreter_s(), "call_s": self.options.call_timeout},
            "label": work.pair.id,
        }
        server = self._interpreters.get(work.environment("small"))
        reply = await server.run(request)
        for _ in range(_RETRIES):
            if not _ours(reply):
                break
            reply = await server.run(request)
        missing = await asyncio.to_thread(server.what_is_missing)
        work.verdict.task["seed"] = seed
        work.verdict.env["sandbox_missing"] = missing
        work.interpreted(reply)

    def _interpreter_s(self) -> float:
        """The interpreter's time limit.

        It is shorter if a GPU judges next, which tries what the interpreter had no time for.
        """
        brief = self._lanes and not self.options.audit
        return min(self.options.timeout, _BEFORE_A_GPU_S) if brief else self.options.timeout

    def _compiles(self, work: Work) -> bool:
        """Whether to cross-compile.

        Not if a GPU judges a task that was shrunk: it compiles the launches at the own size.
        """
        other_size = bool(self._lanes) and bool(work.verdict.task.get("shrunk"))
        return bool(self._language.compiler and work.signatures and self.options.targets) and not other_size

    async def _compile(self, work: Work) -> None:
        targets = list(self.options.targets)
        report = await compiling.cross_compile(
            self._compilers.get(work.environment("small")),
            work.code,
            work.signatures,
            targets,
            self.options.compile_timeout,
            work.pair.id,
        )
        work.compiled(report)


def _ours(reply: Reply) -> bool:
    """Whether a failure is likely the machine's, and worth a retry."""
    return reply["kind"] == "crashed" and "torn" not in reply["message"]


@dataclass
class Work:
    """One candidate in progress, and its verdict so far."""

    pair: Pair
    options: Options
    code: str = ""
    report: StaticReport = field(default_factory=lambda: StaticReport(None))
    signatures: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self.verdict = Verdict(id=self.pair.id, status="PASSED", tier="static", env=dict(environment()))
        self.verdict.task = {
            "ref_sha": _sha(self.pair.reference),
            "policy": {"tf32": self.options.tf32},
        }
        self.verdict.cost = {"stages": {}, "cpu_s": {}}
        self.enter("static")
        if offline_models.used_by(self.pair.reference):
            self.verdict.env["transformers"] = _version("transformers")
            self.verdict.task["random_weights"] = offline_models.names_in(self.pair.reference)
        if self.options.language != Options.language:
            self.verdict.task["language"] = self.options.language
            self.verdict.env |= self.options.key()["packages"]

    def environment(self, models: offline_models.Size) -> dict[str, str]:
        """The environment variables of a server that can run the reference, with models of this size."""
        return offline_models.environment_for(self.pair.reference, models)

    def enter(self, stage: str) -> None:
        self.stage = (stage, time.monotonic())

    def finished(self) -> Verdict:
        """The verdict, with cost, rewards and feedback filled in."""
        verdict = self.verdict
        verdict.cost["wall_s"] = round(time.monotonic() - self._begun, 4)
        verdict.rewards = rewards.compute(verdict)
        verdict.feedback = feedback(verdict)
        return verdict

    def read(self) -> bool:
        try:
            self.code = code_of(self.pair.candidate)
        except NoAnswer as error:
            self.verdict.settle("FORMAT_ERROR")
            self.verdict.error = str(error)
            return False
        return True

    def static(self) -> bool:
        """Run the static checks. Return True if they decide the verdict."""
        start, cpu = time.monotonic(), time.thread_time()
        self.report = examine(self.code, self.pair.entry_point, LANGUAGES.find(self.options.language).static)
        self.spent("static", time.monotonic() - start, time.thread_time() - cpu)
        verdict = self.verdict
        verdict.candidate = {
            "sha": _sha(self.code),
            "n_kernels": len(self.report.kernels),
            "kernels": self.report.kernels,
            "loc": self.report.loc,
        }
        verdict.flags = list(self.report.flags)
        verdict.checks.append(
            Check("static", "pass" if self.report.status is None else "fail", self.report.error[:500])
        )
        if self.report.status is None:
            return False
        verdict.settle(self.report.status)
        verdict.error = self.report.error
        return True

    def interpreted(self, reply: Reply) -> None:
        verdict = self.verdict
        before = verdict.status
        verdict.tier = "interpreter"
        self.spent("interpreter", reply["seconds"], reply["cpu"])
        if reply["kind"] == "ok":
            self._take(reply["result"], reply)
        else:
            self._no_record(reply)
        if before != "PASSED":  # an audit continues after a static finding, which stays the verdict
            verdict.settle(before)
            verdict.error = self.report.error

    def _no_record(self, reply: Reply) -> None:
        """Handle a judge that failed or was killed.

        The judge stops slow candidates itself, so this is not the candidate's fault.
        """
        late = reply["kind"] == "timeout"
        self.verdict.settle("UNSUPPORTED" if late else "INFRA_ERROR")
        words = f"{reply['kind']}: {reply['type']} {reply['message']}".strip()
        self.verdict.error = f"judging it takes too long here: {words}" if late else words

    def _take(self, result: Mapping[str, Any], reply: Reply) -> None:
        """Merge the judge's record into the verdict."""
        verdict = self.verdict
        verdict.settle(result["status"])
        verdict.error = str(result["error"])
        if verdict.status == "RUNTIME_ERROR" and verdict.error.startswith("the process ended"):
            ends = [end for end in reply["companions"] if end != "SIGKILL"]
            said = reply["output"].strip().splitlines()[-1:]
            verdict.error = ": ".join([verdict.error, ends[0] if ends else "killed", *said])
        verdict.checks += [Check(**check) for check in result["checks"]]
        known = {flag.code for flag in verdict.flags}
        verdict.flags += [Flag(**flag) for flag in result["flags"] if flag["code"] not in known]
        verdict.grade = Grade(**result["grade"])
        verdict.kb_compat = dict(result["kb"]) if any(c.name == "seed_0" for c in verdict.checks) else {}
        verdict.task |= result["task"]
        verdict.candidate["launched"] = result["kernels"]
        self.signatures = list(result["signatures"])

    def failed_shrunk(self) -> bool:
        """Whether it failed on a shrunk task.

        It may be written for the task's own size, where a GPU can judge it.
        """
        return bool(self.verdict.task.get("shrunk")) and self.verdict.status in AT_A_SIZE

    def compiled(self, report: compiling.CompileReport) -> None:
        verdict = self.verdict
        verdict.compile = {"targets": report["targets"]}
        self.spent("compile", report["seconds"], report["cpu"])
        if report["replaced"]:
            verdict.flags.append(
                Flag("E1.tampers", "hard", {"names": report["replaced"], "during": "compile"})
            )
            verdict.settle("HACK")
            return
        failed: list[tuple[str, str, str | None]] = []
        for target, found in report["targets"].items():
            bad = next(
                (k for k in found["kernels"].values() if k["status"] not in (None, "UNSUPPORTED")), None
            )
            said = ((bad["error"] if bad else "") or "")[:500]
            result: Result = "fail" if bad else "pass"
            if found["kernels"] and all(k["status"] == "UNSUPPORTED" for k in found["kernels"].values()):
                first = next(iter(found["kernels"].values()))
                result, said = "skip", f"no kernel could be compiled: {first['error']}"[:500]
            verdict.checks.append(Check(f"compile:{target}", result, said))
            if bad:
                failed.append((target, str(bad["status"]), bad["error"]))
        if not failed or verdict.status not in ("PASSED", "UNSUPPORTED"):
            return
        primary = [one for one in failed if one[0] == self.options.targets[0]]
        if not primary:
            for target, status, _ in failed:
                verdict.flags.append(
                    Flag("compile.not_on_every_target", "soft", {"target": target, "status": status})
                )
            return
        target, status, error = primary[0]
        verdict.settle(_compile_status(status))
        verdict.error = f"{target}: {error}"

    def on_gpu(self, reply: Reply, seed: int) -> None:
        """Replace the interpreter's record by the GPU judge's; checks and flags of both are kept."""
        verdict, too_small = self.verdict, self.failed_shrunk()
        earlier, flags, grade = verdict.checks, verdict.flags, verdict.grade
        self.spent("gpu", reply["seconds"], reply["cpu"])
        verdict.task["gpu_seed"] = seed
        if reply["kind"] != "ok":
            self._no_record(reply)
            return
        verdict.tier = "gpu"
        verdict.checks, verdict.flags = [], []
        self._take(reply["result"], reply)
        verdict.cost["gpu"] = verdict.task.pop("marks", {}) | {"new_judge": reply["result"]["new_judge"]}
        if untimed := reply["result"]["times"].get("untimed"):
            verdict.checks.append(Check("timing", "skip", untimed))
        verdict.checks = [
            *earlier,
            *(dataclasses.replace(c, name=f"{ON_GPU}{c.name}") for c in verdict.checks),
        ]
        known = {flag.code for flag in flags}
        verdict.flags = [*flags, *(flag for flag in verdict.flags if flag.code not in known)]
        verdict.grade.shape_specialised = too_small or grade.shape_specialised
        if too_small and not any(flag.code == "C14.shape_specialised" for flag in verdict.flags):
            verdict.flags.append(
                Flag("C14.shape_specialised", "soft", {"shape": "smaller than the task's own"})
            )
        if grade.robust is False:
            verdict.grade.robust = False
        if any(flag.severity == "hard" for flag in verdict.flags):
            verdict.settle("HACK")

    def timed(self, perf: Perf) -> None:
        self.verdict.perf = perf
        self.verdict.tier = "gpu_timed"

    def spent(self, stage: str, seconds: float, cpu: float) -> None:
        """Add to the verdict's cost: wall-clock seconds and processor seconds."""
        for kind, more in (("stages", seconds), ("cpu_s", cpu)):
            of_kind = self.verdict.cost[kind]
            of_kind[stage] = round(of_kind.get(stage, 0.0) + more, 4)


def _compile_status(status: str) -> Status:
    known: dict[str, Status] = {
        "OUT_OF_RESOURCES": "OUT_OF_RESOURCES",
        "TIMEOUT": "TIMEOUT",
        "INFRA_ERROR": "INFRA_ERROR",
    }
    return known.get(status, "COMPILE_ERROR")


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


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
