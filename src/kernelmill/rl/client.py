"""A client for `kernelmill serve`: a reference and a candidate in, a reward or None (masked) out.

What is retried, and for how long:

    429, 503, connection refused   the service is full, starting or stopping: any number of times until
                                   `patience` seconds have passed; `Retry-After` is respected
    500 and the like, a broken     this request failed: `retries` times, with exponential backoff (factor 2)
    connection, a timeout, an
    INFRA_ERROR, a foreign answer
    401, 404, 413, 422             never: a retry would not help (`RewardRefused`)

After that it raises `RewardUnavailable` or, with `mask`, returns a result without a reward. It never invents
a number. A candidate that cannot be judged (`inconclusive`) has no reward either, and that is no error. A
completion that is too long to send is judged by its answer alone; one without an answer is judged like any
other without one.

It needs only the standard library (`post`), whatever a trainer has installed. The blocking client runs the
asynchronous one in a thread, so there is a single retry loop. Not included: batches (`/evaluate/batch`),
because single requests can be retried one by one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import math
import random
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernelmill.base.answers import NoAnswer, code_of
from kernelmill.base.event_loop_thread import EventLoopThread
from kernelmill.errors import ConfigError, EndpointError
from kernelmill.rl.post import Answer, Broken, CannotConnect, address, post
from kernelmill.settings.environment import redact

URL = "http://127.0.0.1:18188"
MAX_CODE = 1 << 18
"""The longest text that the service accepts, in characters."""
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 10.0
_BUSY = (429, 503)
_REFUSALS = (400, 401, 403, 404, 405, 413, 422)
_sleep = asyncio.sleep


class RewardUnavailable(EndpointError):
    """No reward could be obtained, and the candidate is not the cause."""


class RewardRefused(EndpointError):
    """The service rejects this request: its token, its address or a field is wrong."""


class Ask(NamedTuple):
    """What to judge. `candidate` is plain code or a model's whole completion."""

    reference: str
    candidate: str
    entry_point: str | None = None
    """The reference's class if it is not `Model`."""


@dataclass(frozen=True)
class Reward:
    """The result. `reward` is None if the sample is to be left out, and `why` says why."""

    reward: float | None
    verdict: str = "inconclusive"
    """correct, incorrect, hack, inconclusive"""
    status: str = ""
    feedback: str = ""
    why: str = ""
    attempts: int = 0
    record: dict[str, Any] = field(default_factory=dict, repr=False)
    """The whole verdict, if there is one."""

    @property
    def masked(self) -> bool:
        return self.reward is None

    @classmethod
    def of(cls, record: dict[str, Any], reward: float | None, attempts: int = 1) -> Reward:
        """Build the result from a verdict and its reward."""
        verdict, status, why = record["verdict"], record["status"], ""
        if reward is None:
            why = (
                f"{verdict} ({status})" if verdict == "inconclusive" else f"{verdict}, but nothing was timed"
            )
        number = None if reward is None else float(reward)
        return cls(number, verdict, status, record.get("feedback") or "", why, attempts, record)


@dataclass(frozen=True)
class ClientOptions:
    url: str = URL
    token: str | None = field(default=None, repr=False)
    reward: str | None = None
    """The reward's name; None for the service's default."""
    timeout: float = 600.0
    """Seconds for one try, including the time in the service's queue."""
    patience: float = 1800.0
    """Seconds for all tries together."""
    retries: int = 5
    in_flight: int = 64
    """Concurrent requests.

    A request that waits for a retry keeps its slot, so a full service gets no more of them.
    """
    mask: bool = False
    """Return a masked result instead of raising `RewardUnavailable`. `RewardRefused` is still raised."""

    def __post_init__(self) -> None:
        try:
            address(self.url)
        except ValueError as error:
            raise ConfigError(f"{redact(self.url)!r} is not an address of a service: {error}") from None
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise ConfigError("the token has letters that cannot be sent")
        if not (self.timeout > 0 and self.patience > 0 and self.retries >= 0 and self.in_flight >= 1):
            raise ConfigError("timeout, patience and in_flight must be more than 0, and retries not less")


class AsyncRewardClient:
    """The asynchronous client, for one event loop. Use `async with`, or `await close()`."""

    def __init__(self, options: ClientOptions | None = None) -> None:
        self.options = options or ClientOptions()
        self._turns = asyncio.Semaphore(self.options.in_flight)
        self._headers = {"Content-Type": "application/json"}
        if self.options.token is not None:
            self._headers["Authorization"] = f"Bearer {self.options.token}"

    async def __aenter__(self) -> AsyncRewardClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Do nothing: no connection stays open between requests."""

    async def grade(self, reference: str, candidate: str, entry_point: str | None = None) -> Reward:
        ask = Ask(reference, candidate, entry_point)
        if len(candidate) > MAX_CODE:
            ask = ask._replace(candidate=_shortened(candidate))
        async with self._turns:
            return await _RetryLoop(self, ask).result()

    async def grade_many(self, asks: Iterable[Ask]) -> list[Reward]:
        """Grade all of them and return the results in order. The first error cancels the rest."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.grade(*ask)) for ask in asks]
        return [task.result() for task in tasks]

    async def post(self, body: bytes) -> Answer:
        return await post(f"{self.options.url.rstrip('/')}/evaluate", body, self._headers)


class _Retry(Exception):
    """Worth a retry.

    `wait` is the service's `Retry-After`; `counts` is true if this request itself failed.
    """

    def __init__(self, why: str, counts: bool = True, wait: float | None = None) -> None:
        super().__init__(why)
        self.counts, self.wait = counts, wait


class _RetryLoop:
    """One candidate, until there is an answer or the client gives up."""

    def __init__(self, client: AsyncRewardClient, ask: Ask) -> None:
        self._client, self._options = client, client.options
        body = {"reference": ask.reference, "candidate": ask.candidate, "reward": self._options.reward}
        # A lone surrogate cannot be encoded as UTF-8; as an escape it can be sent.
        self._body = json.dumps(body | {"entry_point": ask.entry_point}, ensure_ascii=True).encode()
        self._attempts = self._failures = 0

    async def result(self) -> Reward:
        end = time.monotonic() + self._options.patience
        while True:
            self._attempts += 1
            try:
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + end - time.monotonic()):
                    return await self._once()
            except TimeoutError:
                return self._given_up(f"nothing after {self._options.patience:g} s")
            except _Retry as again:
                self._failures += again.counts
                wait = self._wait() if again.wait is None else again.wait
                if self._failures > self._options.retries:
                    return self._given_up(str(again))
                if time.monotonic() + wait >= end:
                    return self._given_up(
                        f"{again}, and to wait {wait:.0f} s more is past the {self._options.patience:g} s"
                    )
            await _sleep(wait)

    async def _once(self) -> Reward:
        try:
            async with asyncio.timeout(self._options.timeout):
                answer = await self._client.post(self._body)
        except CannotConnect as error:
            raise _Retry(f"cannot connect: {error}", counts=False) from error
        except Broken as error:
            raise _Retry(f"the connection broke: {error}") from error
        except TimeoutError as error:
            raise _Retry(f"no answer in {self._options.timeout:g} s") from error
        # A body that is not UTF-8 is not the service's answer; decoding it must not raise.
        text = answer.body.decode("utf-8", "replace")
        if answer.status != 200:
            raise self._not_answered(answer.status, answer.retry_after, text)
        return self._read(text)

    def _read(self, text: str) -> Reward:
        try:
            record = json.loads(text)
            reward, status, verdict = record["reward"], record["status"], record["verdict"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _Retry(f"not an answer of `kernelmill serve`: {text[:100]!r}") from error
        if not (isinstance(status, str) and isinstance(verdict, str)):
            raise _Retry(f"not an answer of `kernelmill serve`: {text[:100]!r}")
        if status == "INFRA_ERROR":
            raise _Retry(f"the service has trouble of its own: {record.get('error')}")
        if reward is not None and not _is_reward(reward):
            raise _Retry(f"not a reward: {reward!r:.100}")
        return Reward.of(record, reward, self._attempts)

    def _not_answered(self, status: int, retry_after: str | None, text: str) -> Exception:
        said = f"{status} {text[:300]}".strip()
        if status in _REFUSALS:
            return RewardRefused(f"{self._options.url}: {said}")
        wait = float(retry_after) if retry_after and re.fullmatch("[0-9]{1,9}", retry_after) else None
        # Add jitter, so that clients do not all return at once.
        wait = None if wait is None else wait * (1 + random.random() / 4)
        return _Retry(said, counts=status not in _BUSY, wait=wait)

    def _wait(self) -> float:
        longest = min(_FIRST_WAIT * math.pow(2, min(self._attempts - 1, 10)), _LONGEST_WAIT)
        return longest * (0.5 + random.random() / 2)

    def _given_up(self, why: str) -> Reward:
        why = f"no reward from {self._options.url} after {self._attempts} attempts: {why}"
        if not self._options.mask:
            raise RewardUnavailable(why)
        return Reward(None, why=why, attempts=self._attempts)


class RewardClient:
    """The blocking client, usable from any thread. It owns a thread, which `close` ends."""

    def __init__(self, options: ClientOptions | None = None) -> None:
        self._loop_thread = EventLoopThread("kernelmill reward client")
        self._client = AsyncRewardClient(options)

    def __enter__(self) -> RewardClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._loop_thread.closed:
            self._loop_thread.close()

    def grade(self, reference: str, candidate: str, entry_point: str | None = None) -> Reward:
        return self.submit(Ask(reference, candidate, entry_point)).result()

    def grade_many(self, asks: Iterable[Ask]) -> list[Reward]:
        futures = [self.submit(ask) for ask in asks]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def submit(self, ask: Ask) -> concurrent.futures.Future[Reward]:
        """Grade from a foreign event loop: `await asyncio.wrap_future(client.submit(ask))`."""
        return self._loop_thread.submit(self._client.grade(*ask))


def _shortened(text: str) -> str:
    """Shorten a completion that is too long to send to a text that gets the same verdict.

    If there is code, that is the code without the thoughts around it. If there is none, or too much, a
    placeholder with the same verdict is sent: a completion that never ends with an answer must not be masked
    for its length.
    """
    try:
        code = code_of(text)
    except NoAnswer as error:
        return next((short for short in _NO_ANSWERS if _why_none(short) == str(error)), _NO_ANSWERS[0])
    if len(code) > MAX_CODE - len(_MARKED):
        return _TOO_MUCH_CODE
    return code if _is_read_as_itself(code) else _MARKED.format(code)


_MARKED = "<answer>\n{}\n</answer>"
_TOO_MUCH_CODE = "#" * MAX_CODE
"""More than the evaluator reads, without anything that looks like answer tags."""
_NO_ANSWERS = (
    "</think>",
    "<answer>",
    "<think><answer>",
    "<answer></answer>",
    "<answer>import a</answer></answer>",
    "<answer>import a</answer><answer>import b</answer>",
)
"""Completions without an answer, each for a different reason."""


def _why_none(text: str) -> str:
    try:
        code_of(text)
    except NoAnswer as error:
        return str(error)
    return ""


def _is_read_as_itself(code: str) -> bool:
    """Whether the service reads the code as it is.

    Code with answer tags, in a comment for instance, is not.
    """
    try:
        return code_of(code) == code
    except NoAnswer:
        return False


def _is_reward(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
