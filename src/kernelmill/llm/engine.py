"""The engine that asks a model a stage's questions and handles every failure.

`Model` writes each answer to the journal before it looks at it.

- An unusable answer (it does not parse, is empty, or its finish reason is not `stop`) is asked for again, up
  to `tries` times over all runs. Then the row is rejected and the model's texts are kept. Many unusable
  answers in a row stop the run (`unusable`).
- A failed call (5xx, timeout, broken connection) is retried after a jittered, growing pause (`retry`).
- A 429 also lowers the number of calls in flight (`limiter`).
- Questions whose calls still fail stay pending: the next run asks them.
"""

from __future__ import annotations

import time
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kernelmill.base.control import Control, Stats
from kernelmill.errors import EndpointError, Stopped
from kernelmill.llm.budget import Budget
from kernelmill.llm.client import (
    Endpoint,
    Reply,
    Request,
    RequestRefused,
    TransientError,
    cost_of,
    incomplete_reason,
    read_reply,
)
from kernelmill.llm.journal import Answer, Call, Journal
from kernelmill.llm.limiter import Limiter
from kernelmill.llm.retry import Trouble
from kernelmill.llm.unusable import Usefulness

Item = TypeVar("Item")
I_contra = TypeVar("I_contra", contravariant=True)
Messages = list[dict[str, str]]

_CONNECT_GRACE = 60.0
"""Seconds after which a server that was never reached is assumed to be at another address."""


_REFUSALS = 3
_KINDS_OF_RETRY = 50


class BadAnswer(Exception):
    """The answer cannot be used. The text says why, in words that can also be sent to the model."""


class Done(NamedTuple):
    columns: dict[str, Any]


class Failed(NamedTuple):
    """No usable answer: all tries are used up, or the item has a fault."""

    reason: str
    attempts: list[str]


class Pending(NamedTuple):
    """Not answered yet."""


Outcome = Done | Failed | Pending


class CallFailed(Exception):
    """This question was not answered in this run. It stays pending."""


class TooLong(CallFailed):
    """The question is too long for the server. A retry would fail in the same way."""


class Asking(Protocol[I_contra]):
    """The interface through which a stage describes its questions to the engine.

    A stage inherits what it does not need: nothing to collect, no fault, the same messages again.
    """

    def messages(self, item: I_contra) -> Messages: ...

    async def prepare(self, item: I_contra) -> None:
        """Collect what `fault` and `parse` need, before any call is paid for."""
        return

    def fault(self, item: I_contra) -> str | None:
        """Why asking about this item is pointless; None where no reason is known."""
        return None

    async def parse(self, item: I_contra, text: str) -> dict[str, Any]:
        """Parse an answer into columns. Raises `BadAnswer`."""
        ...

    def again(self, messages: Messages, text: str, reason: str) -> Messages:
        """The messages to send after an unusable answer: the same ones, or with a note on what was wrong."""
        return messages


class Model(Generic[Item]):
    """An answerer backed by a model.

    Holds no rows and no answers: those stay in the source and the journal.
    """

    free = False

    def __init__(
        self,
        endpoint: Endpoint,
        asking: Asking[Item],
        journal: Journal,
        stage: str,
        stats: Stats,
        control: Control,
        response_format: dict[str, Any] | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.settings = endpoint.settings
        self.concurrency = self.settings.concurrency
        self._asking = asking
        # Not a null: a request without it keeps its bytes, whose hash is the key of answers already paid for.
        self._fields: dict[str, Any] = {"response_format": response_format} if response_format else {}
        self._journal = journal
        self._stage = stage
        self._stats = stats
        self._control = control
        self._limiter = Limiter(self.settings.concurrency)
        self._last_success: float | None = None
        self._first_call: float | None = None
        self._refused = 0
        self._served = 0
        self._failed_in_a_row = 0
        self._pushed: set[str] = set()
        """Keys of questions that the server pushed back and has not answered since."""
        self._usefulness = Usefulness(self.settings.max_unusable, stats, control)
        self._budget = Budget(self.settings, endpoint.price, stats, control)
        control.on_stop(self._limiter.let_go)

    def messages(self, item: Item) -> Messages:
        return self._asking.messages(item)

    def key(self, item: Item) -> str:
        return self._request(self.messages(item)).key

    def _request(self, messages: Messages) -> Request:
        return self.endpoint.request(messages, **self._fields)

    async def outcome(self, item: Item, key: str) -> Outcome:
        """The outcome of this question according to the journal."""
        answers = self._journal.answers(key)
        attempts = []
        reason = ""
        for answer in answers:
            try:
                return Done(await self._parse(item, answer.response))
            except BadAnswer as bad:
                reason = str(bad)
                attempts.append(_shown(answer.response))
        if not answers and (fault := self._asking.fault(item)):
            return Failed(fault, [])
        if len(answers) >= self.settings.tries:
            return Failed(f"no usable answer in {len(answers)} tries; the last: {reason}", attempts)
        return Pending()

    def spent(self, item: Item, key: str) -> list[float | None]:
        """The cost of each earlier answer to a question; at the current price where none was recorded."""
        costs = []
        for answer in self._journal.answers(key):
            cost = (
                answer.cost
                if answer.cost is not None
                else cost_of(read_reply(answer.response), self.endpoint.price)
            )
            self._budget.note(cost)
            costs.append(cost)
        return costs

    async def answer(self, item: Item, key: str) -> None:
        """Ask until an answer is usable or no try is left.

        Raises `CallFailed` where the question stays pending.
        """
        await self._asking.prepare(item)
        if self._asking.fault(item):
            return
        answers = self._journal.answers(key)
        why = ""
        while len(answers) < self.settings.tries and not self._control.stopping.is_set():
            messages = self._asking.messages(item)
            if answers:
                messages = await self._again(item, messages, answers[-1])
            body = self._request(messages).body
            response = await self._call(body, key, attempt=len(answers), why=why)
            try:
                await self._parse(item, response)
                self._usefulness.usable()
                return
            except BadAnswer as bad:
                self._usefulness.unusable(str(bad), _shown(response))
                why = f"unusable answer: {str(bad)[:60]}"
                answers = self._journal.answers(key)
        if len(answers) < self.settings.tries:
            raise CallFailed("the run was stopped")

    async def _again(self, item: Item, messages: Messages, last: Answer) -> Messages:
        try:
            reply = _usable(last.response)
            await self._asking.parse(item, reply.text)
        except BadAnswer as bad:
            text = _shown(last.response)
            return self._asking.again(messages, text, str(bad)) if text else messages
        return messages

    async def _parse(self, item: Item, response: str) -> dict[str, Any]:
        return await self._asking.parse(item, _usable(response).text)

    async def _call(self, body: bytes, key: str, attempt: int, why: str = "") -> str:
        """Make one call, record the response in the journal and return it.

        `why` is the reason for asking again, if any. A failing call is retried up to `server_retries` times;
        push-back does not count.
        """
        trouble = Trouble(why)
        while True:
            started = await self._start(body, again=trouble.total > 0)
            if trouble.reason:
                self._count_retry(trouble.reason)
            try:
                response = await self.endpoint.call(body)
                reply = _read(response)
                self._succeeded(key)
                await self._record(body, key, attempt, response, reply, time.monotonic() - started)
                return response
            except TransientError as error:
                pause = self._failed(error, started, key, trouble)
            except RequestRefused as error:
                self._refuse(error)
                too_long = error.about_size or (error.too_long and self._has_answered)
                raise (TooLong if too_long else CallFailed)(f"refused by the server ({error})") from None
            except EndpointError as error:
                self._control.stop(error)
                raise CallFailed(str(error)) from None
            finally:
                self._stats.in_flight -= 1
                self._limiter.release()
            # Pause after releasing the slot: a waiting call is not in flight, so another may use the slot.
            await self._control.pause(pause, replace=not self._outage)

    async def _start(self, body: bytes, again: bool) -> float:
        """Wait until the call may be made and count it as in flight. Returns its start time."""
        while True:
            started = await self._limiter.acquire(first=again)
            # No await between this check and counting the call: else many calls could pass the budget at once
            # and exceed it.
            if not self._control.stopping.is_set() and self._budget.affordable(body):
                self._first_call = self._first_call or started
                self._stats.in_flight += 1
                self._stats.requests += 1
                return started
            self._limiter.release()
            if self._control.stopping.is_set():
                raise CallFailed("the run was stopped")
            await self._control.sleep(0.05)

    def _failed(self, error: TransientError, started: float, key: str, trouble: Trouble) -> float:
        """Record a failure and return the seconds until the retry.

        Raises `CallFailed` where there is none.
        """
        self._stats.failing = str(error)
        self._failed_in_a_row += 1
        wait = self._obeyed(error.retry_after)
        if error.pushed_back:
            self._limiter.pushed_back(started, wait, error.exhausted)
            self._pushed.add(key)
        self.check_breaker()
        left = self._stats.total - self._stats.done - self._stats.failed
        trouble.note(error, self._served, self._outage, alone=left <= len(self._pushed))
        if trouble.hopeless(self.settings.server_retries):
            raise CallFailed(f"the call failed {trouble.total} times; the last: {error}") from None
        return trouble.pause(wait)

    def _obeyed(self, retry_after: float | None) -> float | None:
        """`retry_after`, capped at `give_up_after`."""
        return None if retry_after is None else min(retry_after, self.settings.give_up_after * 60)

    def _count_retry(self, reason: str) -> None:
        known = self._stats.retries
        known[reason if reason in known or len(known) < _KINDS_OF_RETRY else "other reasons"] += 1

    def _refuse(self, error: RequestRefused) -> None:
        """Stop the run after several refusals with no answer ever: then the settings are wrong, not a row."""
        self._refused += not error.about_size
        if not self._has_answered and self._refused >= min(_REFUSALS, self._stats.total):
            advice = "check --model and --sampling"
            if self._fields:
                advice += ", or use --answers text: it may not support response_format"
            self._control.stop(
                EndpointError(f"{self.endpoint.name} refuses our requests ({error}): {advice}")
            )

    @property
    def _outage(self) -> bool:
        """Whether as many calls have failed in a row as may be in flight at once."""
        return self._failed_in_a_row >= self.settings.concurrency

    @property
    def _has_answered(self) -> bool:
        """Whether the server has answered such a request before, in this run or an earlier one."""
        return self._last_success is not None or self._stats.answered_before > 0

    def check_breaker(self) -> None:
        """Stop the run where the server has failed for too long.

        Called on each failure and twice a second.
        """
        wait = self._limiter.held_back
        self._stats.waiting = f"the server asked to wait {wait:.0f} s" if wait >= 1 else ""
        if not self._stats.failing or self._first_call is None:
            return
        silent = time.monotonic() - (self._last_success or self._first_call)
        never_reached = self._last_success is None and self._stats.failing.startswith("connection failed")
        # A call in flight may use its whole timeout and still succeed.
        limit = max(self.settings.give_up_after * 60, self.settings.timeout)
        if never_reached:
            limit = min(limit, _CONNECT_GRACE)
        if silent > limit:
            what = f"{self.endpoint.name} could not be reached" if never_reached else "no call has succeeded"
            self._control.stop(
                Stopped(
                    f"{what} for {silent / 60:.1f} minutes (the last failure: {self._stats.failing}): "
                    "check the server, then run the same command to go on"
                )
            )

    def _succeeded(self, key: str) -> None:
        self._last_success = time.monotonic()
        self._served += 1
        self._failed_in_a_row = 0
        self._pushed.discard(key)
        self._stats.failing = ""
        self._limiter.succeeded()

    async def _record(
        self, body: bytes, key: str, attempt: int, response: str, reply: Reply, seconds: float
    ) -> None:
        cost = cost_of(reply, self.endpoint.price)
        stats = self._stats
        stats.calls += 1
        stats.tokens_in += reply.tokens_in or 0
        stats.tokens_out += reply.tokens_out or 0
        stats.tokens_reasoning += reply.tokens_reasoning or 0
        stats.uncounted_calls += reply.tokens_in is None or reply.tokens_out is None
        stats.cost = None if cost is None or stats.cost is None else stats.cost + cost
        self._budget.note(cost)
        call = Call(
            key, attempt, time.time(), self._stage, self.endpoint.name, self.endpoint.model, seconds,
            reply.tokens_in, reply.tokens_out, reply.tokens_reasoning, cost, body, response,
        )  # fmt: skip
        # No await between the response and this one: a run cancelled here has already queued its answer.
        await self._journal.append(call)


def _read(response: str) -> Reply:
    try:
        return read_reply(response)
    except ValueError as error:
        raise TransientError(f"the server's answer cannot be read ({error})") from None


def _usable(response: str) -> Reply:
    """The reply, if it is complete.

    Raises `BadAnswer`. Responses in the journal were parsed once, so they parse.
    """
    reply = read_reply(response)
    if reason := incomplete_reason(reply):
        raise BadAnswer(reason)
    return reply


def _shown(response: str) -> str:
    reply = read_reply(response)
    return reply.text or reply.refusal or ""
