"""The queue between requests and the evaluator. It is independent of HTTP.

An *evaluation* is one candidate being judged; a *waiter* is one request waiting for it. The same content requested
twice is one evaluation with two waiters, or a cache hit. An evaluation that nobody waits for is cancelled, which kills
the processes that judge it.

Candidates that static checks decide (no code, a syntax error, a static hack) need no worker, and are answered
even if the queue is full.

Any failure of the service while judging is an INFRA_ERROR. It is returned as a verdict and not cached.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from kernelmill.evaluate.options import Options, Pair, environment
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.verdict import Tier, Verdict
from kernelmill.serve import self_test
from kernelmill.serve.metrics import Metrics

log = logging.getLogger("kernelmill.serve")
Judge = Callable[[Pair, Options], Awaitable[Verdict]]
StaticJudge = Callable[[Pair, Options], Awaitable[Verdict | None]]
"""Returns the verdict if static checks alone decide it."""
Waiter = asyncio.Future[Verdict]
"""Cancel it to stop waiting."""
State = Literal["starting", "ready", "stopping"]
_LONGEST_WAIT = 60


class Full(Exception):
    """The queue is full. `retry_after` is the number of seconds until there may be a free slot."""

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotReady(Exception):
    """The service is starting or stopping."""


class Job(NamedTuple):
    pair: Pair
    options: Options


@dataclass
class _Evaluation:
    task: asyncio.Task[Verdict]
    waiters: set[Waiter] = field(default_factory=set)


class Service:
    """Judges `workers` candidates at a time and lets `queue` more wait. For one event loop."""

    def __init__(
        self,
        judge: Judge,
        options: Options,
        workers: int,
        queue: int = 256,
        cache: int = 1024,
        hard_timeout: float = math.inf,
        static_verdict: StaticJudge | None = None,
    ) -> None:
        self.options = options
        self.workers = workers
        self.queue = queue
        self.metrics = Metrics()
        self.state: State = "starting"
        self.tier: Tier | None = None
        """The tier that candidates reach here, taken from the self-test."""
        self.hardware: str | None = None
        self.missing: list[str] = []
        """The sandbox protections that this machine could not provide."""
        self._judge = judge
        self._judge_statically = static_verdict
        self._cache: OrderedDict[str, Verdict] = OrderedDict()
        self._cache_size = cache
        self._hard_timeout = hard_timeout
        self._evaluations: dict[str, _Evaluation] = {}
        self._tasks: set[asyncio.Task[Verdict]] = set()
        self._turns = asyncio.Semaphore(workers)
        self._running = 0
        self._promised = 0.0
        """When the last rejected client was told to come back."""

    @property
    def in_flight(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return len(self._tasks) - self._running

    async def warm_up(self) -> None:
        """Judge the self-test pair. Raises `ConfigError` if its verdict is wrong."""
        verdict = await self._judge(self_test.KNOWN, self.options)
        self_test.check(verdict, self.options)
        self.tier = verdict.tier
        self.hardware = hardware(verdict)
        self.missing = list(verdict.env.get("sandbox_missing", []))
        if self.state == "starting":
            self.state = "ready"

    async def take(self, jobs: Sequence[Job]) -> list[Waiter]:
        """Do what `submit` does, but candidates that need no worker take no slot in the queue."""
        read: dict[str, Verdict] = {}
        if self.state == "ready" and self._lacking(jobs, read) > 0:
            for key, job in {job.pair.key(job.options): job for job in jobs}.items():
                if key in self._cache or key in self._evaluations:
                    continue
                if (verdict := await self._static_verdict(job)) is not None:
                    read[key] = verdict
        return self.submit(jobs, read)

    def submit(self, jobs: Sequence[Job], read: Mapping[str, Verdict] | None = None) -> list[Waiter]:
        """Return a waiter for each job; all jobs are accepted or none.

        Raises `Full` or `NotReady`. `read` has verdicts by key.
        """
        if self.state != "ready":
            self.metrics.rejected[self.state] += 1
            raise NotReady(f"the service is {self.state}")
        if (lacking := self._lacking(jobs, read or {})) > 0:
            self.metrics.rejected["full"] += 1
            raise Full(
                f"the queue is full: {self.waiting} wait, {self._running} are being judged",
                self.retry_after(lacking),
            )
        for key, verdict in (read or {}).items():
            self._remember(key, verdict)
        return [self._waiter(job.pair.key(job.options), job, read or {}) for job in jobs]

    def _lacking(self, jobs: Sequence[Job], read: Mapping[str, Verdict]) -> int:
        """Return how many slots the queue lacks for these jobs."""
        keys = {job.pair.key(job.options) for job in jobs}
        new = [key for key in keys if not (key in self._cache or key in self._evaluations or key in read)]
        return len(new) - (self.workers + self.queue - len(self._tasks)) if new else 0

    async def _static_verdict(self, job: Job) -> Verdict | None:
        if self._judge_statically is None:
            return None
        start = time.monotonic()
        try:
            verdict = await self._judge_statically(job.pair, job.options)
        except Exception:
            log.exception("a candidate could not be read")  # judging it will report the error
            return None
        if verdict is not None:
            self.metrics.judged(verdict.status, time.monotonic() - start, by_worker=False)
        return verdict

    def retry_after(self, slots: int) -> int:
        """Estimate the seconds until this many slots are free.

        Each rejected client is told a later time than the one before, so that they do not all return for the
        same place. The times start over once they pass the end of all current work, so that no place stays
        empty for long.
        """
        now, each = time.monotonic(), self.metrics.mean_seconds() / self.workers
        if not now <= self._promised <= now + each * len(self._tasks):
            self._promised = now
        self._promised += each * slots
        return min(max(math.ceil(self._promised - now), 1), _LONGEST_WAIT)

    async def stop(self, grace: float) -> None:
        """Reject new jobs, let those in flight finish for `grace` seconds, then cancel them."""
        self.state = "stopping"
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _waiter(self, key: str, job: Job, read: Mapping[str, Verdict]) -> Waiter:
        waiter: Waiter = asyncio.get_running_loop().create_future()
        if (verdict := read.get(key) or self._cache.get(key)) is not None:
            if key in self._cache:
                self._cache.move_to_end(key)
            self.metrics.answers["judged" if key in read else "cached"] += 1
            waiter.set_result(verdict)
            return waiter
        evaluation, source = self._evaluations.get(key), "joined"
        if evaluation is None:
            evaluation, source = self._start_evaluation(key, job), "judged"
        evaluation.waiters.add(waiter)
        waiter.add_done_callback(functools.partial(self._on_waiter_done, key, evaluation, source))
        return waiter

    def _start_evaluation(self, key: str, job: Job) -> _Evaluation:
        task = asyncio.create_task(self._run(job))
        evaluation = self._evaluations[key] = _Evaluation(task)
        self._tasks.add(task)
        task.add_done_callback(functools.partial(self._on_done, key, evaluation))
        return evaluation

    async def _run(self, job: Job) -> Verdict:
        if (read := await self._static_verdict(job)) is not None:
            return read
        async with self._turns:
            self._running += 1
            start = time.monotonic()
            try:
                async with asyncio.timeout(None if math.isinf(self._hard_timeout) else self._hard_timeout):
                    verdict = await self._judge(job.pair, job.options)
            except Exception as error:
                # One failed evaluation must not stop the service; the log has the traceback.
                log.exception("an evaluation failed")
                verdict = trouble(job.pair.id, f"{type(error).__name__}: {error}")
            finally:
                self._running -= 1
            self.metrics.judged(verdict.status, time.monotonic() - start)
            return verdict

    def _on_done(self, key: str, evaluation: _Evaluation, task: asyncio.Task[Verdict]) -> None:
        self._tasks.discard(task)
        if self._evaluations.get(key) is evaluation:
            del self._evaluations[key]
        if task.cancelled():
            self.metrics.cancelled += 1
        elif task.result().status != "INFRA_ERROR":
            self._remember(key, task.result())
        for waiter in [waiter for waiter in evaluation.waiters if not waiter.done()]:
            if task.cancelled():
                waiter.set_exception(NotReady("the service is stopping"))
            else:
                waiter.set_result(task.result())

    def _remember(self, key: str, verdict: Verdict) -> None:
        self._cache[key] = verdict
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)

    def _on_waiter_done(self, key: str, evaluation: _Evaluation, source: str, waiter: Waiter) -> None:
        evaluation.waiters.discard(waiter)
        if not waiter.cancelled():
            self.metrics.answers[source] += waiter.exception() is None
        elif not evaluation.waiters and not evaluation.task.done():
            # From here on no waiter may join it.
            if self._evaluations.get(key) is evaluation:
                del self._evaluations[key]
            evaluation.task.cancel()


def hardware(verdict: Verdict) -> str:
    """Return what it was judged on: the GPU's name, if there was one."""
    return str(verdict.task.get("gpu") or (verdict.perf.device if verdict.perf else "cpu"))


def trouble(id: str, message: str) -> Verdict:
    """Build the verdict for a failure of the service, which never counts as wrong."""
    verdict = Verdict(id=id, status="INFRA_ERROR", tier="static", env=dict(environment()))
    verdict.error = " ".join(message.split())[:500]
    verdict.rewards = rewards.compute(verdict)
    verdict.feedback = feedback(verdict)
    return verdict
