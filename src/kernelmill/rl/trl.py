"""Reward functions for TRL's `GRPOTrainer`.

    from kernelmill.rl.trl import reward
    GRPOTrainer(model, reward_funcs=reward, args=..., train_dataset=rows)

The rows have the reference's source as `label`, as `kernelmill problems export` writes it, and may name the
reference's class as `entry_point`. None is TRL's own value for masked: with no other reward function, such a
completion counts neither in its group's mean nor in the loss. With other reward functions (a length penalty,
say), TRL sums those that return a number. Does not import TRL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from kernelmill.errors import ConfigError
from kernelmill.rl import shared
from kernelmill.rl.client import Ask
from kernelmill.rl.completions import text_of

Completion = str | Sequence[Mapping[str, Any]]
RewardFunction = Callable[..., list[float | None]]
AsyncRewardFunction = Callable[..., Awaitable[list[float | None]]]


def reward_function(reference: str = "label", **options: Any) -> RewardFunction:
    """Build a reward function for another reference column, or for other client options (`url`, ...)."""

    def kernelmill(
        prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        found = shared.client(**options).grade_many(_asks(reference, completions, columns))
        _log(found, columns)
        return [one.reward for one in found]

    return kernelmill


def async_reward_function(reference: str = "label", **options: Any) -> AsyncRewardFunction:
    """Build the same as a coroutine: TRL runs asynchronous reward functions concurrently."""

    async def kernelmill(
        prompts: Sequence[Any], completions: Sequence[Completion], **columns: Any
    ) -> list[float | None]:
        asks = _asks(reference, completions, columns)
        found = await asyncio.gather(*(shared.grade(ask, **options) for ask in asks))
        _log(found, columns)
        return [one.reward for one in found]

    return kernelmill


reward = reward_function()
async_reward = async_reward_function()


def _asks(reference: str, completions: Sequence[Completion], columns: Mapping[str, Any]) -> list[Ask]:
    if reference not in columns:
        raise ConfigError(f"the rows have no column {reference!r} with the reference's source")
    entry_points = columns.get("entry_point") or [None] * len(completions)
    return [
        Ask(source, text_of(completion), entry_point)
        for source, completion, entry_point in zip(columns[reference], completions, entry_points, strict=True)
    ]


def _log(found: Sequence[Any], columns: Mapping[str, Any]) -> None:
    """Log each reward's reason to TRL's completions table, and the share of masked completions."""
    if log_extra := columns.get("log_extra"):
        log_extra("kernelmill_status", [one.status or one.why for one in found])
    if log_metric := columns.get("log_metric"):
        log_metric("kernelmill/masked", sum(one.masked for one in found) / len(found))
