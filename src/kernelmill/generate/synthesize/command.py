"""`kernelmill synthesize`, with a model behind an endpoint or with the Inductor compiler as teacher."""

from __future__ import annotations

from functools import partial

from rich.console import Console

from kernelmill.flow import Estimate, StageResult
from kernelmill.generate.inductor.teacher import Teacher
from kernelmill.generate.synthesize.model_writer import ModelWriter
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.rollout import RolloutRunner, RolloutState
from kernelmill.generate.synthesize.runner import WriterContext, run
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.generate.synthesize.teacher_writer import TeacherWriter
from kernelmill.generate.synthesize.writer import Writer
from kernelmill.llm.client import Endpoint
from kernelmill.settings.options import processors
from kernelmill.stages.answering import Batch, Plan
from kernelmill.stages.run_stage import estimated, open_endpoint, say_estimate
from kernelmill.tokens.vocabulary import TokenCounter, token_counter

_EXPECTED_TOKENS = 4000
"""Expected length of an answer, for a dry run's estimate."""
_FEEDBACK_TOKENS = 400
"""Expected length of the feedback on a wrong answer."""


async def synthesize(settings: SynthesizeSettings) -> StageResult:
    """Rows with a module in (KernelBook, KernelBench, problem files); one evals row for each rollout out.

    Candidates are written by a model, or by the compiler with `teacher`, and judged by the evaluator.
    """
    return await (_taught(settings) if settings.teacher else _asked(settings))


async def _taught(settings: SynthesizeSettings) -> StageResult:
    workers = processors(settings.workers)

    async def compiler(context: WriterContext) -> Writer:
        teacher = None if settings.dry_run else context.stack.enter_context(Teacher(workers))
        return TeacherWriter(teacher, context.journal, workers)

    def dry_run(batch: Batch[CandidateRequest], rollouts: RolloutRunner, plan: Plan) -> Estimate:
        print(
            f"{plan.rows:,} problems, {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for the compiler"
        )
        states = [rollouts.state_of(item) for _, item in batch.pending_items(plan)]
        print(f"to write: {sum(one.written is None for one in states):,}, to judge: {len(states):,}")
        return Estimate(plan.asked)

    return await run(settings, compiler, dry_run)


async def _asked(settings: SynthesizeSettings) -> StageResult:
    # Before opening a source, so that a missing key is reported before any download.
    endpoint = open_endpoint(settings)

    async def model(context: WriterContext) -> Writer:
        if not settings.dry_run:
            await context.stack.enter_async_context(endpoint)
        return ModelWriter(endpoint, context.journal, context.stats, context.control)

    return await run(settings, model, partial(_dry_run, endpoint=endpoint, turns=settings.turns))


def _dry_run(
    batch: Batch[CandidateRequest], rollouts: RolloutRunner, plan: Plan, endpoint: Endpoint, turns: int
) -> Estimate:
    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{plan.rows:,} rollouts, {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {endpoint.model}"
    )
    counter = token_counter()
    states = [rollouts.state_of(item) for _, item in batch.pending_items(plan)]
    sure = sum(state.written is None for state in states)
    calls = tokens_in = 0
    for state in states:
        more, tokens = _to_ask(state, turns, counter)
        calls, tokens_in = calls + more, tokens_in + tokens
    shown = f"at most {calls:,}" if calls > sure else f"{calls:,}"
    repairs = f" ({sure:,}, and {calls - sure:,} more where every answer has to be repaired)" * (calls > sure)
    console.print(f"calls: {shown} to {endpoint.model} at {endpoint.name}{repairs}")
    console.print(f"to judge without a call: {len(states) - sure:,}")
    first = next(batch.items(), None)
    prompt = first.messages if first is not None else None
    estimate = estimated(plan.asked, calls, tokens_in, _EXPECTED_TOKENS, endpoint.price)
    estimate = estimate._replace(at_most=calls > sure)
    say_estimate(console, estimate, _EXPECTED_TOKENS, prompt)
    return estimate


def _to_ask(state: RolloutState, turns: int, counter: TokenCounter) -> tuple[int, int]:
    """Return how many calls a rollout may still need, and their input tokens.

    Each turn sends the whole conversation.
    """
    said = sum(counter.count(message["content"]) for message in state.asked)
    calls = turns - len(state.turns)
    if state.written is not None:
        calls -= 1
        said += counter.count(state.written.content) + _FEEDBACK_TOKENS
    # The first call sends the conversation so far; each later one adds an answer and its feedback.
    return calls, calls * said + calls * (calls - 1) // 2 * (_EXPECTED_TOKENS + _FEEDBACK_TOKENS)
