"""slime by its documented signatures: a sample with the fields that slime gives it, and the engine's turns on script."""

from __future__ import annotations

import asyncio
import enum
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.errors import ConfigError
from kernelmill.rl import client, shared, slime
from kernelmill.rl.client import RewardUnavailable
from tests.rl.stub import Answer, Body, Stub, verdict


@dataclass
class Sample:
    class Status(enum.Enum):
        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"

    response: str = ""
    label: str = "ref"
    group_index: int | None = 0
    reward: float | None = None
    remove_sample: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    status: Status = Status.PENDING
    response_length: int = 0
    loss_mask: list[int] = field(default_factory=list)

    def get_reward_value(self, args: Any) -> float:
        assert self.reward is not None
        return self.reward

    def append_response_tokens(self, args: Any, *, tokens: list[int], trainable: bool, text: str) -> None:
        self.response += text
        self.response_length += len(tokens)
        self.loss_mask += [int(trainable)] * len(tokens)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with Stub() as made:
        yield made
        shared.close()


def arguments(url: str | None = None, **more: Any) -> Namespace:
    usual: dict[str, Any] = {
        "rm_url": url, "group_rm": False, "advantage_estimator": "grpo", "rewards_normalization": True,
        "grpo_std_normalization": True,
        "custom_reward_post_process_path": "kernelmill.rl.slime.post_process_rewards",
    }  # fmt: skip
    return Namespace(**usual | more)


def test_a_sample_gets_its_reward_and_a_masked_one_is_left_out_of_the_loss(stub: Stub) -> None:
    known, unknown = Sample("0.5"), Sample("?", metadata={"entry_point": "Swish"})
    args = arguments(stub.url)
    assert asyncio.run(slime.reward(args, known)) == slime.reward_sync(args, known) == 0.5
    asyncio.run(slime.reward(args, unknown))
    assert [one.remove_sample for one in (known, unknown)] == [False, True]
    assert [slime.is_masked(one) for one in (known, unknown)] == [False, True]
    assert stub.bodies[-1] == {"reference": "ref", "candidate": "?", "entry_point": "Swish", "reward": None}


def test_a_group_gets_its_rewards_and_a_masked_sample_the_mean_of_the_others(stub: Stub) -> None:
    group = [Sample("0.5"), Sample("?"), Sample("1")]
    args = arguments(stub.url, group_rm=True, custom_reward_post_process_path=None)
    assert asyncio.run(slime.reward(args, group)) == [0.5, 0.75, 1.0]
    assert [one.remove_sample for one in group] == [False, True, False]
    nobody = [Sample("?"), Sample("?")]
    assert asyncio.run(slime.reward(args, nobody)) == [0.0, 0.0]
    assert all(one.remove_sample for one in nobody)


def test_where_masked_samples_would_count_it_says_so_before_the_first_one(stub: Stub) -> None:
    with pytest.raises(ConfigError, match="--group-rm"):
        asyncio.run(slime.reward(arguments(stub.url, custom_reward_post_process_path=None), Sample("0.5")))
    assert stub.bodies == []


def test_a_fault_is_raised_and_is_never_a_reward(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.001)
    stub.always = lambda body: (500, "broken")
    for args, asked in (
        (arguments(stub.url), Sample("0.5")),
        (arguments(stub.url, group_rm=True), [Sample("0.5")]),
    ):
        with pytest.raises(RewardUnavailable):
            asyncio.run(slime.reward(args, asked))


REWARDS = st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 0.3, 1.0]))


@given(st.lists(st.lists(REWARDS, min_size=1, max_size=6), min_size=1, max_size=4), st.randoms())
def test_masked_samples_have_no_part_in_the_normalization_of_their_group(
    groups: list[list[float | None]], chance: Any
) -> None:
    samples = [
        Sample(group_index=number, reward=0.0 if reward is None else reward, metadata={"kernelmill_masked": reward is None})
        for number, group in enumerate(groups)
        for reward in group
    ]  # fmt: skip
    chance.shuffle(samples)
    raw, ready = slime.post_process_rewards(arguments(), samples)
    assert len(raw) == len(ready) == len(samples)
    for number, group in enumerate(groups):
        known = [reward for reward in group if reward is not None]
        mine = [(one, value) for one, value in zip(samples, ready, strict=True) if one.group_index == number]
        for one, value in mine:
            if slime.is_masked(one):
                assert value == 0
            else:
                spread = statistics.stdev(known) if len(known) > 1 else 0
                assert value == pytest.approx(
                    (one.get_reward_value(None) - statistics.fmean(known)) / (spread + 1e-6)
                )


def test_where_slime_does_not_normalize_nothing_is_normalized() -> None:
    samples = [Sample(reward=1.0), Sample(reward=0.5)]
    assert slime.post_process_rewards(arguments(rewards_normalization=False), samples) == ([1, 0.5], [1, 0.5])
    assert slime.post_process_rewards(arguments(advantage_estimator="ppo"), samples) == ([1, 0.5], [1, 0.5])
    centered = arguments(advantage_estimator="reinforce_plus_plus_baseline")
    assert slime.post_process_rewards(centered, samples)[1] == [0.25, -0.25]
    with pytest.raises(ConfigError, match="group_index"):
        slime.post_process_rewards(arguments(), [Sample(group_index=None, reward=1.0)])


class Tokenizer:
    """A chat template like Qwen's, and a token for each character."""

    eos_token = "<end>"

    def apply_chat_template(self, messages: Any, tokenize: bool, add_generation_prompt: bool) -> str:
        assert not tokenize
        assert add_generation_prompt
        turns = "".join(f"<{message['role']}>{message['content']}<end>\n" for message in messages)
        return f"{turns}<assistant>"

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(letter) for letter in text]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the model will write, turn by turn: slime's `generate` as its documentation has it."""
    turns: list[str] = []

    async def generate(args: Any, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
        assert sample.status in (Sample.Status.PENDING, Sample.Status.ABORTED)
        sampling_params["max_new_tokens"] -= sample.response_length
        text = turns.pop(0)
        sample.append_response_tokens(args, tokens=[1] * len(text), trainable=True, text=text)
        ended = {"...": Sample.Status.TRUNCATED, "|||": Sample.Status.ABORTED}
        sample.status = ended.get(text[-3:], Sample.Status.COMPLETED)
        return sample

    module: Any = ModuleType("slime.rollout.sglang_rollout")
    module.generate = generate
    module.GenerateState = lambda args: Namespace(tokenizer=Tokenizer())
    for name in ("slime", "slime.rollout"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return turns


def wrong_until_good(body: Body) -> Answer:
    good = "good" in body["candidate"]
    return 200, verdict(1.0 if good else 0.1, "correct" if good else "incorrect", "PASSED" if good else "X")


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        (["bad<end>", "good<end>"], ["bad<end>", "good<end>"]),
        (["good<end>"], ["good<end>"]),
        (["bad...", "never"], []),
    ],
)
def test_a_wrong_candidate_is_told_why_and_may_try_again_until_it_is_right(
    stub: Stub, engine: list[str], written: list[str], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_REWARD_TURNS", "3")
    stub.always = wrong_until_good
    engine += written
    sample, budget = Sample(), {"max_new_tokens": 1000}
    sample = asyncio.run(slime.generate(arguments(stub.url), sample, budget))
    assert [body["candidate"] for body in stub.bodies] == asked
    assert budget == {"max_new_tokens": 1000}
    said = "\n<user>said<end>\n<assistant>"
    if len(asked) == 2:
        assert sample.response == f"bad<end>{said}good<end>"
        assert sample.loss_mask == [1] * 8 + [0] * len(said) + [1] * 9
    # What is rewarded is the last turn alone.
    if sample.status == Sample.Status.COMPLETED:
        assert asyncio.run(slime.reward(arguments(stub.url), sample)) == 1.0
        assert stub.bodies[-1]["candidate"] == "good<end>"


def test_turns_end_with_their_number_and_with_the_budget(
    stub: Stub, engine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.always = wrong_until_good
    engine += ["bad", "bad", "bad"]
    sample = asyncio.run(slime.generate(arguments(stub.url), Sample(), {"max_new_tokens": 1000}))
    assert len(engine) == 1
    # The end of the turn is added where the engine has cut it.
    assert sample.response == "bad<end>\n<user>said<end>\n<assistant>bad"
    engine[:] = ["bad", "bad"]
    asyncio.run(slime.generate(arguments(stub.url), Sample(), {"max_new_tokens": 10}))
    assert len(engine) == 1
    monkeypatch.setenv("KERNEL_REWARD_TURNS", "none")
    with pytest.raises(ConfigError, match="KERNEL_REWARD_TURNS=none"):
        asyncio.run(slime.generate(arguments(stub.url), Sample(), {}))


def test_an_aborted_sample_goes_on_in_its_turn_and_its_whole_answer_is_judged(
    stub: Stub, engine: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNEL_REWARD_TURNS", "2")
    stub.always = wrong_until_good
    engine += ["one|||", "bad<end>", "two|||", "three|||", "good<end>", "never"]
    sample = Sample()
    for status in (
        Sample.Status.ABORTED,
        Sample.Status.ABORTED,
        Sample.Status.ABORTED,
        Sample.Status.COMPLETED,
    ):
        sample = asyncio.run(slime.generate(arguments(stub.url), sample, {"max_new_tokens": 1000}))
        assert sample.status == status
    assert engine == ["never"]
    asyncio.run(slime.reward(arguments(stub.url), sample))
    assert [body["candidate"] for body in stub.bodies] == ["one|||bad<end>", "two|||three|||good<end>"]
