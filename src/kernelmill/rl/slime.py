"""Functions for slime, with the signatures of its documentation.

    --custom-rm-path kernelmill.rl.slime.reward
    --custom-reward-post-process-path kernelmill.rl.slime.post_process_rewards
    --custom-generate-function-path kernelmill.rl.slime.generate     several turns, with feedback
    --rm-url http://127.0.0.1:18188                                  or KERNEL_REWARD_URL

The rows have the reference's source as `label`, as `kernelmill problems export` writes them.

slime leaves a sample out of the loss if `remove_sample` is set. Its reward must still be a number, and still
counts in the group's mean. `post_process_rewards` normalizes as slime does, without the masked samples. With
`--group-rm` it is not needed: `reward` then sees the group, and gives a masked sample the mean of the others,
which does not change that mean. One of the two is required, and `reward` raises if neither is in place. Only
`generate` imports slime.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Sequence
from typing import Any

from kernelmill.errors import ConfigError
from kernelmill.rl import shared
from kernelmill.rl.client import Ask, Reward
from kernelmill.rl.completions import mean

TURNS_VARIABLE = "KERNEL_REWARD_TURNS"
_LAST = "kernelmill_from"
"""Metadata key: where the last turn's answer begins in the response."""
_TURN = "kernelmill_turn"
"""Metadata key: the number of that turn, from 0."""
_MASKED = "kernelmill_masked"
_GROUPED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
_BY_STD = ("grpo", "gspo", "cispo")


async def reward(args: Any, sample: Any, **more: Any) -> Any:
    """Return a sample's reward, or with `--group-rm` a list for a group."""
    if isinstance(sample, list):
        found = await asyncio.gather(*(_grade(args, one) for one in sample))
        neutral = mean([one.reward for one in found])
        return [_mark(one, result, neutral) for one, result in zip(sample, found, strict=True)]
    if not getattr(args, "custom_reward_post_process_path", None):
        raise ConfigError(
            "a masked sample would count in its group's mean: add --group-rm, or "
            "--custom-reward-post-process-path kernelmill.rl.slime.post_process_rewards"
        )
    # The number of a masked sample has no meaning: `post_process_rewards` leaves it out.
    return _mark(sample, await _grade(args, sample), 0.0)


def reward_sync(args: Any, sample: Any, **more: Any) -> Any:
    """Do the same as `reward`, blocking."""
    return asyncio.run(reward(args, sample, **more))


def post_process_rewards(args: Any, samples: Sequence[Any], **more: Any) -> tuple[list[float], list[float]]:
    """Return raw rewards and those to train with, normalized by group where slime would do so.

    A masked sample gets its group's mean, which normalizes to 0."""
    groups: dict[Any, list[Any]] = {}
    for sample in samples:
        if sample.group_index is None:
            raise ConfigError("a sample has no group_index: masked samples cannot be left out of a group")
        groups.setdefault(sample.group_index, []).append(sample)
    by_group = args.advantage_estimator in _GROUPED and args.rewards_normalization
    by_std = args.advantage_estimator in _BY_STD and args.grpo_std_normalization
    raw: dict[int, float] = {}
    ready: dict[int, float] = {}
    for group in groups.values():
        known = [one.get_reward_value(args) for one in group if not is_masked(one)]
        center = statistics.fmean(known) if known else 0.0
        spread = statistics.stdev(known) if len(known) > 1 else 0.0
        for one in group:
            value = raw[id(one)] = center if is_masked(one) else one.get_reward_value(args)
            if by_group:
                value -= center
                if by_std:
                    value /= spread + 1e-6
            ready[id(one)] = value
    return [raw[id(one)] for one in samples], [ready[id(one)] for one in samples]


def is_masked(sample: Any) -> bool:
    return bool((sample.metadata or {}).get(_MASKED))


async def generate(
    args: Any, sample: Any, sampling_params: dict[str, Any], evaluation: bool = False, **more: Any
) -> Any:
    """Generate several turns: slime's own generation, then the verdict's feedback as the user's next message.

    It ends after KERNEL_REWARD_TURNS (2) turns or when a candidate is correct. Only the model's own tokens
    are trained on, and the last turn is rewarded. An aborted sample (`--partial-rollout`) continues in the
    turn it was in."""
    from slime.rollout.sglang_rollout import GenerateState
    from slime.rollout.sglang_rollout import generate as one_turn

    turns = _turns()
    tokenizer = GenerateState(args).tokenizer
    before = sample.metadata or {}
    aborted = sample.status == type(sample).Status.ABORTED and _TURN in before
    first = min(before[_TURN], turns - 1) if aborted else 0
    for turn in range(first, turns):
        begin = before[_LAST] if aborted and turn == first else len(sample.response)
        # A copy, because slime deducts written tokens from the budget in place.
        sample = await one_turn(args, sample, dict(sampling_params))
        sample.metadata = {**(sample.metadata or {}), _LAST: begin, _TURN: turn}
        if sample.status != type(sample).Status.COMPLETED or turn == turns - 1:
            break
        found = await _grade(args, sample)
        if found.masked or found.verdict == "correct":
            break
        told = next_turn(tokenizer, found.feedback, sample.response)
        tokens = tokenizer.encode(told, add_special_tokens=False)
        if sample.response_length + len(tokens) >= sampling_params["max_new_tokens"]:
            break
        sample.append_response_tokens(args, tokens=tokens, trainable=False, text=told)
        sample.status = type(sample).Status.PENDING
    return sample


def next_turn(tokenizer: Any, feedback: str, response: str) -> str:
    """Return the text between the model's answer and its next one, from the chat template."""
    mark = "kernelmill-answer"
    messages = [
        {"role": "user", "content": "."},
        {"role": "assistant", "content": mark},
        {"role": "user", "content": feedback},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    after: str = text.rpartition(mark)[2]
    end = tokenizer.eos_token or ""
    # The engine may already have kept the end-of-turn token.
    return after.removeprefix(end) if end and response.endswith(end) else after


async def _grade(args: Any, sample: Any) -> Reward:
    metadata = sample.metadata or {}
    text = sample.response[metadata.get(_LAST, 0) :]
    ask = Ask(sample.label, text, metadata.get("entry_point"))
    return await shared.grade(ask, url=getattr(args, "rm_url", None))


def _mark(sample: Any, found: Reward, neutral: float) -> float:
    said = {"kernelmill_status": found.status or found.why, _MASKED: found.masked}
    sample.metadata = {**(sample.metadata or {}), **said}
    if found.reward is not None:
        return found.reward
    sample.remove_sample = True
    return neutral


def _turns() -> int:
    text = os.environ.get(TURNS_VARIABLE, "2")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{TURNS_VARIABLE}={text}: expected a number of turns, 1 or more")
    return int(text)
