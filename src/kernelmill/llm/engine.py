"""Asking a model, with everything that can go wrong on the way.

`Model` answers the questions of a stage. An answer is written to the journal before it is looked at. One that cannot be
used (it does not parse, is empty, or ended for any reason but `stop`) is asked for again, up to `tries` times in all,
over all runs; then the row is rejected and what the model said is kept. A call that fails on the way (5xx, time-out,
broken connection) is made again after a jittered, growing pause; a 429 also lowers the number of calls in flight. Calls
that failed are owed: the next run makes them.
"""

from __future__ import annotations

import random
import time
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kernelmill.control import Control, Stats
from kernelmill.errors import EndpointError, Stopped
from kernelmill.llm.client import Endpoint, Reply, RequestRefused, TransientError, cost_of, read_reply
from kernelmill.llm.journal import Answer, Call, Journal
from kernelmill.llm.limiter import Limiter

Item = TypeVar("Item")
I_contra = TypeVar("I_contra", contravariant=True)
Messages = list[dict[str, str]]

_PAUSES = (0.5, 60.0)
"""Seconds: the first pause at most, and the longest."""
_CONNECT_GRACE = 60.0
"""Seconds after which a server that was never reached is taken to be at another address."""


_REFUSALS = 3
_OTHERS = 8
_KINDS_OF_RETRY = 50
_LONG_ANSWER = 4096
_KNOWN_AFTER = 8


class BadAnswer(Exception):
    """The answer cannot be used; the text says why, in words that a model understands too."""


class Done(NamedTuple):
    columns: dict[str, Any]


class Failed(NamedTuple):
    """No usable answer in all tries."""

    reason: str
    attempts: list[str]


class Owed(NamedTuple):
    """Not answered yet."""


Outcome = Done | Failed | Owed


class CallFailed(Exception):
    """This question was not answered in this run; it is owed."""


class TooLong(CallFailed):
    """The server takes no question of this length: whoever asks again gets the same answer."""


class Asking(Protocol[I_contra]):
    """What a stage tells the engine about its questions."""

    def messages(self, item: I_contra) -> Messages: ...

    async def prepare(self, item: I_contra) -> None:
        """Find out what `fault` and `judge` need, before anything is paid."""
        ...

    def fault(self, item: I_contra) -> str | None:
        """Why there is no point in asking about this item, as far as it is known."""
        ...

    async def judge(self, item: I_contra, text: str) -> dict[str, Any]:
        """The columns that an answer gives. Raises `BadAnswer`."""
        ...

    def again(self, messages: Messages, text: str, reason: str) -> Messages:
        """What to ask after an unusable answer: the same again, or with a word about what was wrong."""
        ...


class Model(Generic[Item]):
    """A model as one who answers. Holds no row and no answer: both stand in the journal and the source."""

    def __init__(
        self,
        endpoint: Endpoint,
        asking: Asking[Item],
        journal: Journal,
        stage: str,
        stats: Stats,
        control: Control,
    ) -> None:
        self.endpoint = endpoint
        self.settings = endpoint.settings
        self.name = endpoint.model
        self.concurrency = self.settings.concurrency
        self._asking = asking
        self._journal = journal
        self._stage = stage
        self._stats = stats
        self._control = control
        self._limiter = Limiter(self.settings.concurrency)
        self._last_success: float | None = None
        self._first_call: float | None = None
        self._failing = ""
        self._refused = 0
        self._served = 0
        self._pushed: set[str] = set()
        """Questions that the server pushed back and has not answered since."""
        self._priced = 0
        self._dearest = 0.0
        control.on_stop(self._limiter.let_go)

    def messages(self, item: Item) -> Messages:
        return self._asking.messages(item)

    def key(self, item: Item) -> str:
        return self.endpoint.request(self.messages(item)).key

    async def settle(self, item: Item, key: str) -> Outcome:
        """What the journal says of this question."""
        answers = self._journal.answers(key)
        attempts = []
        reason = ""
        for answer in answers:
            try:
                return Done(await self._judge(item, answer.response))
            except BadAnswer as bad:
                reason = str(bad)
                attempts.append(_shown(answer.response))
        if not answers and (fault := self._asking.fault(item)):
            return Failed(fault, [])
        if len(answers) >= self.settings.tries:
            return Failed(f"no usable answer in {len(answers)} tries; the last: {reason}", attempts)
        return Owed()

    def spent(self, item: Item, key: str) -> list[float | None]:
        """What earlier answers to a question cost; at today's price where the price was not known then."""
        costs = []
        for answer in self._journal.answers(key):
            cost = (
                answer.cost
                if answer.cost is not None
                else cost_of(read_reply(answer.response), self.endpoint.price)
            )
            self._note_cost(cost)
            costs.append(cost)
        return costs

    def _note_cost(self, cost: float | None) -> None:
        self._priced += cost is not None
        self._dearest = max(self._dearest, cost or 0.0)

    async def answer(self, item: Item, key: str) -> None:
        """Ask until there is a usable answer or no try is left. Raises `CallFailed` where the question stays owed."""
        await self._asking.prepare(item)
        if self._asking.fault(item):
            return
        answers = self._journal.answers(key)
        while len(answers) < self.settings.tries and not self._control.stopping.is_set():
            messages = self._asking.messages(item)
            if answers:
                messages = await self._again(item, messages, answers[-1])
            body = self.endpoint.request(messages).body
            response = await self._call(body, key, attempt=len(answers))
            try:
                await self._judge(item, response)
                return
            except BadAnswer as bad:
                self._count_retry(f"unusable answer: {str(bad)[:60]}")
                answers = self._journal.answers(key)
        if len(answers) < self.settings.tries:
            raise CallFailed("the run was stopped")

    async def _again(self, item: Item, messages: Messages, last: Answer) -> Messages:
        try:
            reply = _usable(last.response)
            await self._asking.judge(item, reply.text)
        except BadAnswer as bad:
            text = _shown(last.response)
            return self._asking.again(messages, text, str(bad)) if text else messages
        return messages

    async def _judge(self, item: Item, response: str) -> dict[str, Any]:
        return await self._asking.judge(item, _usable(response).text)

    async def _call(self, body: bytes, key: str, attempt: int) -> str:
        """One answer, journalled. Failing calls are made again up to `server_retries` times; push-back does not count."""
        failures = pushes = strikes = 0
        served = 0
        while True:
            await self._wait_for_turn()
            started = await self._limiter.acquire()
            # No await from here to the count of calls in flight: otherwise many would pass the budget together.
            if self._control.stopping.is_set() or not self._affordable(body):
                self._limiter.release()
                if self._control.stopping.is_set():
                    raise CallFailed("the run was stopped")
                await self._control.sleep(0.05)
                continue
            if self._first_call is None:
                self._first_call = started
            self._stats.in_flight += 1
            try:
                response = await self.endpoint.call(body)
                reply = _read(response)
                self._succeeded(key)
                await self._record(body, key, attempt, response, reply, time.monotonic() - started)
                return response
            except TransientError as error:
                self._failed(error, started)
                if error.pushed_back:
                    pushes += 1
                    self._pushed.add(key)
                    # Others were served since, or nobody but such requests is left: it is this one that the server does not want.
                    left = self._stats.total - self._stats.done - self._stats.failed
                    strikes += pushes > 1 and (self._served - served >= _OTHERS or left <= len(self._pushed))
                    served = self._served
                else:
                    failures += 1
                if failures > self.settings.server_retries or strikes > 2 * max(
                    8, self.settings.server_retries
                ):
                    raise CallFailed(
                        f"the call failed {failures + pushes} times; the last: {error}"
                    ) from None
                pause = self._pause(failures, error.retry_after)
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
            # Outside the slot: a call that waits is not in flight.
            await self._control.sleep(pause)

    def _pause(self, failures: int, retry_after: float | None) -> float:
        """Seconds to wait after so many failures: growing, jittered, never less than the server asked for.

        Push-back alone does not make it grow: the limiter slows the run as a whole.
        """
        first, longest = _PAUSES
        jittered = random.uniform(0.5, 1.0) * min(longest, first * 2.0 ** min(20, max(0, failures - 1)))
        return max(self._obeyed(retry_after) or 0.0, jittered)

    def _obeyed(self, retry_after: float | None) -> float | None:
        """No wait is longer than the run's patience with a server that does not answer."""
        return None if retry_after is None else min(retry_after, self.settings.give_up_after * 60)

    def _failed(self, error: TransientError, started: float) -> None:
        self._failing = str(error)
        self._count_retry(self._failing[:80])
        if error.pushed_back:
            self._limiter.pushed_back(started, self._obeyed(error.retry_after))
        self.check_breaker()

    def _count_retry(self, reason: str) -> None:
        known = self._stats.retries
        known[reason if reason in known or len(known) < _KINDS_OF_RETRY else "other reasons"] += 1

    def _refuse(self, error: RequestRefused) -> None:
        """One refused request is a row's trouble; several, with nothing ever answered, are the settings'."""
        self._refused += not error.about_size
        if not self._has_answered and self._refused >= min(_REFUSALS, self._stats.total):
            self._control.stop(
                EndpointError(
                    f"{self.endpoint.name} refuses our requests ({error}): check --model and --sampling"
                )
            )

    @property
    def _has_answered(self) -> bool:
        """Whether this server takes requests like ours, as far as it is known."""
        return self._last_success is not None or self._stats.answered_before > 0

    async def _wait_for_turn(self) -> None:
        if wait := self._limiter.held_back:
            if wait >= 1:
                self._stats.waiting = f"the server asked to wait {wait:.0f} s"
            await self._control.sleep(wait)
            self._stats.waiting = ""

    def check_breaker(self) -> None:
        """Stop the run when the server has been failing for too long. Called on each failure and once a second."""
        if not self._failing or self._first_call is None:
            return
        silent = time.monotonic() - (self._last_success or self._first_call)
        never_reached = self._last_success is None and self._failing.startswith("connection failed")
        # A call in flight may take its whole time and still be answered.
        limit = max(self.settings.give_up_after * 60, self.settings.timeout)
        if never_reached:
            limit = min(limit, _CONNECT_GRACE)
        if silent > limit:
            what = f"{self.endpoint.name} could not be reached" if never_reached else "no call has succeeded"
            self._control.stop(
                Stopped(
                    f"{what} for {silent / 60:.1f} minutes (the last failure: {self._failing}): "
                    "check the server, then run the same command to go on"
                )
            )

    def _succeeded(self, key: str) -> None:
        self._last_success = time.monotonic()
        self._served += 1
        self._pushed.discard(key)
        self._failing = ""
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
        self._note_cost(cost)
        call = Call(
            key, attempt, time.time(), self._stage, self.endpoint.name, self.endpoint.model, seconds,
            reply.tokens_in, reply.tokens_out, reply.tokens_reasoning, cost, body, response,
        )  # fmt: skip
        # No await between the response and this: a run that is cancelled here has its answer queued already.
        await self._journal.append(call)

    def _affordable(self, body: bytes) -> bool:
        """Whether one call more fits `max_cost`, with all that are in flight as dear as the dearest so far.

        Before the first answers the length of one is not known: then it is taken to be long, but for a call that would be
        alone in flight. So the budget is passed at the most by what one call is dearer than all before it.
        """
        most, price, stats = self.settings.max_cost, self.endpoint.price, self._stats
        if most is None or price is None:
            return True
        if stats.cost is None:
            self._control.stop(
                Stopped("the server does not say how many tokens a call took, so --max-cost cannot be kept")
            )
            return False
        question = len(body) / 3.5 * price.input / 1e6
        spent = stats.spent_before + stats.cost
        if stats.in_flight:
            limit = (
                self.settings.sampling.max_completion_tokens
                or self.settings.sampling.max_tokens
                or _LONG_ANSWER
            )
            dearest = self._dearest if self._priced >= _KNOWN_AFTER else question + limit * price.output / 1e6
            # If not, what is in flight may still turn out cheap enough for one more.
            return spent + dearest * (stats.in_flight + 1) <= most
        if spent + max(self._dearest, question) <= most:
            return True
        self._control.stop(
            Stopped(
                f"--max-cost {most:g} would be passed: ${spent:.4f} spent on this job; "
                "raise it and run the same command to go on"
            )
        )
        return False


def _read(response: str) -> Reply:
    try:
        return read_reply(response)
    except ValueError as error:
        raise TransientError(f"the server's answer cannot be read ({error})") from None


def _usable(response: str) -> Reply:
    """The reply, if it is a whole one. What is in the journal has been read once, so it decodes."""
    reply = read_reply(response)
    if reply.refusal:
        raise BadAnswer("the model refused to answer")
    if reply.finish != "stop":
        raise BadAnswer(f"the answer ended with finish_reason {reply.finish or 'missing'}, not stop")
    if not reply.text.strip():
        raise BadAnswer("the answer is empty")
    return reply


def _shown(response: str) -> str:
    reply = read_reply(response)
    return reply.text or reply.refusal or ""
