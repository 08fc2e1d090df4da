"""TRL's own trainer with our reward function: rewards and masks arrive as they were given."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from kernelmill.errors import ConfigError
from kernelmill.rl import shared
from kernelmill.rl.client import RewardUnavailable
from kernelmill.rl.trl import async_reward_function, reward_function
from tests.generate.synthesize.tiny_model import write_model
from tests.rl.stub import Answer, Body, Stub, verdict

ROWS = {"label": ["ref a", "ref b", "ref c"], "entry_point": [None, "Swish", None]}
COMPLETIONS = [
    "0.5",
    [{"role": "assistant", "content": "?"}],
    [{"role": "assistant", "content": [{"text": "-1"}]}],
]


@pytest.fixture(autouse=True)
def no_client_is_left() -> Any:
    yield
    shared.close()


def test_a_reward_for_each_completion_and_none_for_those_that_nobody_can_judge() -> None:
    with Stub() as stub:
        logged: dict[str, Any] = {}
        more = {
            "log_extra": logged.__setitem__,
            "log_metric": logged.__setitem__,
            "completion_ids": [[1]] * 3,
        }
        found = reward_function(url=stub.url)(prompts=["p"] * 3, completions=COMPLETIONS, **ROWS, **more)
        asked = async_reward_function(url=stub.url)(prompts=["p"] * 3, completions=COMPLETIONS, **ROWS)
        again: list[float | None] = asyncio.run(asked)  # type: ignore[arg-type]
    assert found == again == [0.5, None, -1.0]
    assert sorted((body["reference"], body["entry_point"]) for body in stub.bodies[:3]) == [
        ("ref a", None), ("ref b", "Swish"), ("ref c", None),
    ]  # fmt: skip
    assert logged == {"kernelmill_status": ["OK", "UNSUPPORTED", "OK"], "kernelmill/masked": 1 / 3}


def test_a_fault_is_raised_or_masked_as_told_and_is_never_a_number() -> None:
    with Stub(always=lambda body: (500, "broken")) as stub:
        with pytest.raises(RewardUnavailable):
            reward_function(url=stub.url, retries=0)(["p"], ["1"], label=["r"])
        assert reward_function(url=stub.url, retries=0, mask=True)(["p"], ["1"], label=["r"]) == [None]


def test_rows_without_a_reference_are_told() -> None:
    with pytest.raises(ConfigError, match="no column 'label'"):
        reward_function()(["p"], ["1"], other=["r"])


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_grpo_trains_and_a_masked_completion_has_no_advantage(tmp_path: Path) -> None:
    pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    folder = write_model(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder)
    words = AutoTokenizer.from_pretrained(folder)
    given: list[float | None] = []

    def answer(body: Body) -> Answer:
        """By turns: known, unknown, known, known."""
        reward = None if len(given) % 4 == 1 else float(len(given) % 4)
        given.append(reward)
        return 200, verdict(reward, "inconclusive" if reward is None else "correct")

    with Stub(always=answer) as stub:
        arguments = GRPOConfig(
            output_dir=str(tmp_path / "out"), max_steps=3, per_device_train_batch_size=4, num_generations=4,
            max_completion_length=8, logging_steps=1, use_cpu=True, report_to=[], save_strategy="no",
            log_completions=False, seed=1, dataloader_pin_memory=False,
        )  # fmt: skip
        rows = Dataset.from_list([{"prompt": f"w{n}", "label": f"ref {n}"} for n in range(8)])
        trainer: Any = GRPOTrainer(
            model=model, reward_funcs=reward_function(url=stub.url, in_flight=1), args=arguments,
            train_dataset=rows, processing_class=words,
        )  # fmt: skip
        trainer.train()
    assert len(given) == 12
    rewards = list(trainer._logs["rewards"]["kernelmill"])[-4:]
    advantages = list(trainer._logs["advantages"])[-4:]
    assert [math.isnan(reward) for reward in rewards] == [False, True, False, False]
    assert advantages[1] == 0
    # The mean is that of the three others: (0 + 2 + 3) / 3.
    assert advantages[0] < advantages[2] < advantages[3]
    assert advantages[2] > 0
    assert sum(advantages) == pytest.approx(0, abs=1e-4)
    steps = [step for step in trainer.state.log_history if "reward" in step]
    assert [step["reward"] for step in steps] == pytest.approx([5 / 3] * 3)
    assert [step["kernelmill/masked"] for step in steps] == [0.25] * 3
