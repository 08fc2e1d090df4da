"""One GPU: a warm server for its judges, a cache of baselines by reference, a health check. No torch."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelmill.evaluate.gpu.gpu_memory import ALL, MemoryShares, memory_was_short, share_of
from kernelmill.evaluate.gpu.wall_clock import clocks_agree
from kernelmill.evaluate.verdict import Perf
from kernelmill.sandbox import OVERDUE, Doing, Reply, Sandbox
from kernelmill.sandbox.gpu_vendors import judge_environment
from kernelmill.sandbox.pool import Pool

if TYPE_CHECKING:
    from kernelmill.evaluate.evaluation import Evaluation
    from kernelmill.evaluate.languages import Language
    from kernelmill.evaluate.options import Options

TOO_GOOD = 10.0
"""A speed-up above this is confirmed by a second judge with other numbers."""
PROGRAM_SLOWER = 1.05
"""From how many times as slow on the candidate's program counts instead of what was measured in its own process."""
_UNHEALTHY_AFTER = 2
_REQUESTS_OF_A_JUDGE = 500
_KERNELS = 10
"""Compile timeout for all kernels and configurations of a candidate, as a multiple of that for one kernel."""
_BASELINE_S = 30.0
"""Seconds for torch.compile of one reference in one mode. It usually takes about three; Python loops over
many steps take minutes."""
_WORKERS_PER_JUDGE = 1.5
"""Worker processes per concurrent judge: the extra ones compile baselines."""
_MAX_REMEMBERED = 10_000


def _server(
    device: int, options: Options, language: Language, at_once: int, environment: Mapping[str, str]
) -> Sandbox:
    assert language.gpu is not None
    return Sandbox(
        language.gpu,
        workers=int(_WORKERS_PER_JUDGE * at_once) if at_once > 1 else 1,
        timeout=4 * options.timeout + _KERNELS * options.compile_timeout,
        memory_mb=max(options.memory_mb, 16384),
        companions=1,
        reuse=_REQUESTS_OF_A_JUDGE,
        programs=language.programs(True),
        gpu=True,
        environment={"TORCHINDUCTOR_COMPILE_THREADS": "1"} | judge_environment(device) | dict(environment),
    )


class GpuJudges:
    """The judges of one GPU: starts them, queues requests by memory, retries with exclusive use of the GPU.

    Baselines are measured once per reference and cached. `unhealthy` is set after failed health checks.
    """

    def __init__(self, device: int, options: Options, language: Language, at_once: int) -> None:
        self.device, self.waiting, self.unhealthy = device, 0, False
        self._failures = 0
        self._shares = MemoryShares()
        self._needs_exclusive: dict[str, None] = {}
        """References that ran out of memory on a shared GPU."""
        self._memory: int | None = None
        """The GPU's memory in bytes, once it has been queried."""
        self._baselines: dict[tuple[str, tuple[str, ...]], _Wanted] = {}
        self._servers = Pool(partial(_server, device, options, language, at_once))

    def close(self) -> None:
        self._servers.close()

    def what_is_missing(self) -> list[str]:
        return self._servers.get({}).what_is_missing()

    def doing(self) -> list[Doing]:
        """What each running request on this GPU is doing."""
        return self._servers.doing()

    async def judge(self, evaluation: Evaluation, timed: bool) -> None:
        self.waiting += 1
        try:
            await self._judge(evaluation, timed)
        finally:
            self.waiting -= 1

    async def _judge(self, evaluation: Evaluation, timed: bool) -> None:
        options = evaluation.options
        seed = secrets.randbits(62) if options.seed is None else options.seed
        request = {
            "do": "judge",
            "reference": evaluation.pair.reference,
            "candidate": evaluation.code,
            "class": evaluation.report.class_name,
            "entry_point": evaluation.pair.entry_point,
            "seed": seed,
            "audit": options.audit,
            "tf32": options.tf32,
            "limits": {
                "total_s": options.timeout,
                "call_s": options.call_timeout,
                "compile_s": options.compile_timeout,
                "compile_total_s": _KERNELS * options.compile_timeout,
            },
            "timed": timed,
            "traces": evaluation.wants_trace,
            "label": evaluation.pair.id,
            "constant": evaluation.verdict.task.get("constant_outputs", []),
            # A candidate that the interpreter could not run gets every check here.
            "probes": "after_interpreter"
            if evaluation.verdict.status == "PASSED" and not options.audit
            else "all",
        }
        lacking, env = await asyncio.to_thread(self.what_is_missing), evaluation.verdict.env
        env["sandbox_missing"] = list(dict.fromkeys([*env.get("sandbox_missing", ()), *lacking]))
        # Most candidates that passed the interpreter are correct: compile their baselines meanwhile.
        early = timed and options.baselines and evaluation.verdict.status == "PASSED"
        compiling_it = asyncio.create_task(self._baselines_of(evaluation)) if early else None
        try:
            await self._judge_and_time(request, evaluation, seed, compiling_it)
        finally:
            if compiling_it is not None:
                compiling_it.cancel()
                await asyncio.gather(compiling_it, return_exceptions=True)

    async def _judge_and_time(
        self,
        request: dict[str, Any],
        evaluation: Evaluation,
        seed: int,
        known: asyncio.Task[dict[str, Any]] | None,
    ) -> None:
        reply = await self._asked(request, evaluation, seed)
        times = _times(reply)
        if not times or evaluation.verdict.status != "PASSED":
            return
        baselines: dict[str, Any] = {}
        if evaluation.options.baselines:
            baselines = await (known or self._baselines_of(evaluation))
        found = perf(times, baselines, f"cuda:{self.device}", evaluation)
        if found.speedup > TOO_GOOD:
            again = await self._asked(request | {"seed": seed ^ 1}, evaluation, seed ^ 1)
            times = _times(again)
            if not times or evaluation.verdict.status != "PASSED":
                return
            second = perf(times, baselines, f"cuda:{self.device}", evaluation)
            found = min(found, second, key=lambda one: one.speedup)
            found.notes.append("the lower of two measurements, by two judges: it is very fast")
        evaluation.timed(found)

    async def _run(
        self, request: dict[str, Any], evaluation: Evaluation, limit: float | None = None
    ) -> Reply:
        """Run a request on the shared GPU, or with exclusive use if it needs that.

        The request needs exclusive use if the task is too large, or if this reference ran out of memory
        before. Hub models always get it: they are large, and another server's judges do not share its
        lock.
        """
        server = self._servers.get(evaluation.environment("full"))
        reference, share = evaluation.verdict.task["ref_sha"], await self._share(evaluation)
        if share < ALL and reference not in self._needs_exclusive:
            async with self._shares.taking(share):
                reply = await server.run(request, limit)
            if not memory_was_short(_error_of(reply)):
                return reply
            self._needs_exclusive[reference] = None
            while len(self._needs_exclusive) > _MAX_REMEMBERED:
                del self._needs_exclusive[next(iter(self._needs_exclusive))]
        async with self._shares.taking(ALL):
            reply = await server.run(request | {"exclusive": True}, limit)
        if memory_was_short(_error_of(reply)) and reply["result"].get("status") == "INFRA_ERROR":
            # With exclusive use, this would happen every time.
            reply["result"]["status"] = "UNSUPPORTED"
            reply["result"]["error"] = f"this task does not fit on this GPU\n{reply['result']['error']}"
        return reply

    async def _share(self, evaluation: Evaluation) -> float:
        """The share of the GPU's memory that the task needs; 0 if its size is unknown."""
        size = evaluation.verdict.task.get("own_bytes")
        if evaluation.environment("full"):
            return ALL
        if size is None:
            return 0.0
        if self._memory is None:
            said = await self._servers.get({}).run({"do": "health"})
            self._memory = int(said["result"]["memory"]) if said["kind"] == "ok" else None
        return share_of(size, self._memory) if self._memory else 0.0

    async def _asked(self, request: dict[str, Any], evaluation: Evaluation, seed: int) -> Reply:
        reply = await self._run(request, evaluation)
        if suspect := _retry_exclusively(reply):
            evaluation.spent("gpu", reply["seconds"], reply["cpu"])
            reply = await self._run(request | {"suspect": suspect}, evaluation)
        evaluation.on_gpu(reply, seed)
        if reply["kind"] in ("timeout", "crashed") or evaluation.verdict.status == "TIMEOUT":
            await self._check_health()
        return reply

    async def _check_health(self) -> None:
        """Check the GPU after a hang or a crash.

        After two failures it gets no more work while others are healthy.
        """
        said = await self._servers.get({}).run({"do": "health"})
        well = said["kind"] == "ok" and said["result"].get("sum") == 1000.0
        self._failures = 0 if well else self._failures + 1
        self.unhealthy = self._failures >= _UNHEALTHY_AFTER

    async def _baselines_of(self, evaluation: Evaluation) -> dict[str, Any]:
        """The compiled reference's speed-up over eager.

        Measured once per reference, and cancelled if nobody waits for it.
        """
        key = (evaluation.verdict.task["ref_sha"], evaluation.options.baselines)
        wanted = self._baselines.get(key)
        if wanted is None:
            wanted = self._baselines[key] = _Wanted(asyncio.create_task(self._measure_baselines(evaluation)))
        wanted.by += 1
        try:
            return await asyncio.shield(wanted.found)
        finally:
            wanted.by -= 1
            failed = wanted.found.done() and (
                wanted.found.cancelled() or wanted.found.exception() is not None
            )
            if failed or not (wanted.by or wanted.found.done()):
                wanted.found.cancel()
                if self._baselines.get(key) is wanted:
                    del self._baselines[key]

    async def _measure_baselines(self, evaluation: Evaluation) -> dict[str, Any]:
        request = {
            "do": "baseline",
            "reference": evaluation.pair.reference,
            "entry_point": evaluation.pair.entry_point,
            "seed": secrets.randbits(31),
            "modes": list(evaluation.options.baselines),
            "label": f"the baseline of {evaluation.pair.id}",
        }
        reply = await self._run(request, evaluation, _BASELINE_S * len(evaluation.options.baselines))
        evaluation.spent("baselines", reply["seconds"], reply["cpu"])
        if reply["kind"] == "ok":
            return reply["result"]
        if reply["kind"] != "timeout":  # another failure may not occur the next time
            self._baselines.pop((evaluation.verdict.task["ref_sha"], evaluation.options.baselines), None)
        return {"error": f"{reply['kind']}: {reply['message']}"}


@dataclass
class _Wanted:
    """A baseline, and the number of waiters."""

    found: asyncio.Task[dict[str, Any]]
    by: int = 0


def _retry_exclusively(reply: Reply) -> str:
    """Who to judge again with exclusive use of the GPU.

    This is a candidate that timed out on a shared GPU, or a reference that held the GPU lock too long.
    """
    if reply["kind"] == "ok":
        late = reply["result"]["retry_exclusively"] and reply["result"]["status"] == "TIMEOUT"
        return "candidate" if late else ""
    return "reference" if reply["kind"] == "timeout" and reply["type"] == OVERDUE else ""


def _error_of(reply: Reply) -> str:
    found = reply["result"].get("error", "") if reply["kind"] == "ok" else reply["message"]
    return str(found)


def _times(reply: Reply) -> dict[str, Any]:
    """The times in a reply; empty if nothing was timed."""
    times: dict[str, Any] = reply["result"].get("times", {}) if reply["kind"] == "ok" else {}
    return times if "regime" in times else {}


def perf(times: dict[str, Any], baselines: dict[str, Any], device: str, evaluation: Evaluation) -> Perf:
    """Summarise each timed regime, and compare the one that the reward uses with the fastest baseline."""
    regime, kernels = times["regime"], times.get("device")
    by_regime = {
        one: {"eager": times[one]["eager_us"]}
        | {
            name: times[one]["eager_us"] / found[one]
            for name, found in baselines.items()
            if isinstance(found, dict) and one in found
        }
        for one in ("latency", "device")
        if one in times
    }
    chosen, known = times[regime], by_regime[regime]
    # The candidate was measured against eager side by side, and so was every other baseline.
    against = min(known.values()) / known["eager"]
    notes = [f"baseline: {baselines['error']}"] if "error" in baselines else []
    if times["waits"]:
        notes.append(f"timed as a caller sees it: the {' and the '.join(times['waits'])} waits for the GPU")
    wall = times["wall_us"]
    if not clocks_agree(wall):
        # The candidate did work that its events do not cover. Use the time that a caller waits.
        against *= wall["events"] / wall["candidate"]
        notes.append(
            f"by the judge's clock a call takes {wall['candidate']:.0f} us, by events {wall['events']:.0f} us: "
            "the speed-up is by the judge's"
        )
    replay = times.get("replay") or {"program_us": None, "own_us": None}
    slower = replay["own_us"] and replay["program_us"] > PROGRAM_SLOWER * replay["own_us"]
    if slower and regime == "latency":  # the device regime is timed by the program
        against *= replay["own_us"] / replay["program_us"]
        notes.append(
            f"its kernels take {replay['program_us']:.1f} us when its program runs elsewhere, {replay['own_us']:.1f} "
            "us in its own process: the speed-up is by the first"
        )
    return Perf(
        device=f"{device} {evaluation.verdict.task.get('gpu', '')}".strip(),
        regime=regime,
        median_us=chosen["median_us"],
        ci=chosen["ci"],
        n=chosen["n"],
        baselines=known,
        speedup=chosen["speedup"] * against,
        speedup_lo=chosen["low"] * against,
        speedup_hi=chosen["high"] * against,
        latency_us=times["latency"]["median_us"],
        device_us=kernels["median_us"] if kernels else None,
        baselines_latency=by_regime["latency"],
        baselines_device=by_regime.get("device", {}),
        wall_us=wall["candidate"],
        program_us=replay["program_us"],
        own_us=replay["own_us"],
        mean_us=chosen["mean_us"],
        std_us=chosen["std_us"],
        min_us=chosen["min_us"],
        max_us=chosen["max_us"],
        roofline_frac=times["roofline_frac"],
        clock_mhz=min(times["mhz"]),
        compile_s=times["compile_s"],
        notes=notes,
    )
