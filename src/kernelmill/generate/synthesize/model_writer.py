"""A writer that asks a model behind an OpenAI-compatible endpoint.

Every answer counts, including one that is truncated, empty or a refusal: it is a sample of what the model
does, and becomes a row that says so. Only with `--tries` above 1 is such an answer requested again. Thoughts
are read from `reasoning`, `reasoning_content` and `<think>` in the text. If a seed is set, each rollout uses
the seed plus its number, because with one seed all rollouts would be the same. A conversation that exceeds
the server's context ends there. The journal stores this, because the server would reject it again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kernelmill.base.answers import NoAnswer, no_code, split_thoughts
from kernelmill.base.control import Control, Stats
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.settings import STAGE
from kernelmill.generate.synthesize.writer import Ended, WriterAnswer
from kernelmill.llm.client import Endpoint, Reply, Request, cost_of, incomplete_reason, read_reply
from kernelmill.llm.engine import Asking, CallFailed, Messages, Model, TooLong
from kernelmill.llm.journal import JournalReader


class _NothingToAsk(Asking[CandidateRequest]):
    """The engine's stage interface, without effect: the writer does this work itself."""

    def messages(self, item: CandidateRequest) -> Messages:
        return item.messages

    async def parse(self, item: CandidateRequest, text: str) -> dict[str, Any]:
        return {}


class ModelWriter(Model[CandidateRequest]):
    """The engine's model, asked for several samples of one prompt."""

    def __init__(self, endpoint: Endpoint, journal: JournalReader, stats: Stats, control: Control) -> None:
        # A dry run's journal is read-only; a dry run never gets an answer to write.
        super().__init__(endpoint, _NothingToAsk(), journal, STAGE, stats, control)  # type: ignore[arg-type]
        self.name = f"llm:{endpoint.model}"
        self.at_once = self.settings.concurrency

    def known(self, problem: CandidateRequest, messages: Messages) -> WriterAnswer | Ended | None:
        key = self._candidate_request(problem, messages).key
        stored = self._journal.answers(key)
        if not stored:
            refused = self._journal.fact(f"too-long:{key}")
            return None if refused is None else Ended(refused)
        replies = [read_reply(one.response) for one in stored]
        whole = next((place for place, reply in enumerate(replies) if not incomplete_reason(reply)), None)
        if whole is None and len(stored) < self.settings.tries:
            return None
        used = len(stored) - 1 if whole is None else whole
        costs = tuple(
            one.cost if one.cost is not None else cost_of(reply, self.endpoint.price)
            for one, reply in zip(stored, replies, strict=True)
        )
        known_costs = [cost for cost in costs if cost is not None]
        content, reasoning = text_and_reasoning(replies[used])
        return WriterAnswer(
            content=content,
            reasoning=reasoning,
            fault=incomplete_reason(replies[used]),
            finish=replies[used].finish,
            seconds=sum(one.seconds for one in stored),
            tokens_in=_total([reply.tokens_in for reply in replies]),
            tokens_out=_total([reply.tokens_out for reply in replies]),
            cost=sum(known_costs) if len(known_costs) == len(costs) else None,
            costs=costs,
        )

    async def write(self, problem: CandidateRequest, messages: Messages) -> None:
        request, why = self._candidate_request(problem, messages), ""
        while self.known(problem, messages) is None:
            if self._control.stopping.is_set():
                raise CallFailed("the run was stopped")
            try:
                response = await self._call(
                    request.body, request.key, len(self._journal.answers(request.key)), why
                )
                why = self._note(read_reply(response))
            except TooLong as refused:
                await self._journal.add_fact(f"too-long:{request.key}", str(refused))

    def _note(self, reply: Reply) -> str:
        """Return why an answer has no candidate, or an empty string.

        Many such answers in a row stop the run.
        """
        content, _ = text_and_reasoning(reply)
        if why := incomplete_reason(reply) or no_code(content):
            self._usefulness.unusable(why, content)
            return f"unusable answer: {why[:60]}"
        self._usefulness.usable()
        return ""

    def _candidate_request(self, problem: CandidateRequest, messages: Messages) -> Request:
        request = self.endpoint.request(messages, problem.sample)
        seed = self.settings.sampling.seed
        if seed is None or not problem.sample:
            return request
        body = msgspec.json.decode(request.body) | {"seed": seed + problem.sample}
        return Request(request.key, msgspec.json.encode(body))


def text_and_reasoning(reply: Reply) -> tuple[str, str]:
    """Return the text and the thoughts of an answer, wherever the server put them."""
    content = reply.text or reply.refusal or ""
    try:
        inside, rest = split_thoughts(content)
    except NoAnswer:
        # Thoughts without an end: the text stays as it is, and is no answer.
        return content, reply.reasoning
    if not inside:
        return content, reply.reasoning
    return rest.strip("\r\n"), "\n\n".join(filter(None, (reply.reasoning, inside)))


def _total(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
