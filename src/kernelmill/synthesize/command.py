"""`kernelmill synthesize`, with a model behind an endpoint or with the compiler as teacher."""

from __future__ import annotations

from functools import partial

from rich.console import Console

from kernelmill.arguments import processors
from kernelmill.batch import Plan
from kernelmill.flow import Estimate, Made
from kernelmill.llm.client import Endpoint
from kernelmill.run_stage import estimated, say_estimate
from kernelmill.synthesize.model_writer import ModelWriter
from kernelmill.synthesize.runner import Opened, Synthesis, run
from kernelmill.synthesize.settings import SynthesizeSettings
from kernelmill.synthesize.teacher_writer import TeacherWriter
from kernelmill.synthesize.writer import Writer
from kernelmill.teacher.teacher import Teacher
from kernelmill.tokens import token_counter

_EXPECTED_TOKENS = 4000
"""Of an answer, for the estimate of a dry run."""


async def synthesize(settings: SynthesizeSettings) -> Made:
    """Have candidates judged: a model's, or the compiler's."""
    return await (_taught(settings) if settings.teacher else _asked(settings))


async def _taught(settings: SynthesizeSettings) -> Made:
    workers = processors(settings.workers)

    async def compiler(opened: Opened) -> Writer:
        teacher = None if settings.dry_run else opened.stack.enter_context(Teacher(workers))
        return TeacherWriter(teacher, opened.journal, workers)

    def dry_run(batch: Synthesis, plan: Plan) -> Estimate:
        print(
            f"{plan.rows:,} problems, {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for the compiler"
        )
        standings = [batch.rollouts.look(item) for _, item in batch.owed_items(plan)]
        print(f"to write: {sum(one.written is None for one in standings):,}, to judge: {len(standings):,}")
        return Estimate(plan.asked)

    return await run(settings, compiler, dry_run)


async def _asked(settings: SynthesizeSettings) -> Made:
    endpoint = Endpoint(settings)
    if not settings.dry_run:
        # Before a source is opened: a missing key must not wait for a download.
        endpoint.check_key()

    async def model(opened: Opened) -> Writer:
        if not settings.dry_run:
            await opened.stack.enter_async_context(endpoint)
        return ModelWriter(endpoint, opened.journal, opened.stats, opened.control)

    return await run(settings, model, partial(_dry_run, endpoint=endpoint))


def _dry_run(batch: Synthesis, plan: Plan, endpoint: Endpoint) -> Estimate:
    console = Console(markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{plan.rows:,} rollouts, {plan.dropped:,} dropped, {plan.bad:,} unreadable, {plan.asked:,} for {endpoint.model}"
    )
    counter = token_counter()
    standings = [batch.rollouts.look(item) for _, item in batch.owed_items(plan)]
    asked = [standing.asked for standing in standings if standing.written is None]
    tokens_in = sum(counter.count(message["content"]) for messages in asked for message in messages)
    console.print(
        f"calls: {len(asked):,} to {endpoint.model} at {endpoint.name}, and more where turns follow"
    )
    console.print(f"to judge without a call: {len(standings) - len(asked):,}")
    first = next(batch.items(), None)
    prompt = first.messages if first is not None else None
    estimate = estimated(plan.asked, len(asked), tokens_in, _EXPECTED_TOKENS, endpoint.price)
    say_estimate(console, estimate, _EXPECTED_TOKENS, prompt)
    return estimate
