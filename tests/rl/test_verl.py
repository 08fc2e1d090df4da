"""verl by its documented signatures: its managers call by keyword, and want a number for every sample."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.rl import shared, verl
from kernelmill.rl.client import RewardUnavailable
from tests.rl.stub import Stub


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stub]:
    monkeypatch.setattr(verl, "_seen", verl._Seen())
    with Stub() as made:
        yield made
        shared.close()


def one(stub: Stub, solution: str, truth: str = "ref", **extra: object) -> verl.Score:
    """As the naive manager calls it, with the configuration's `reward_kwargs`."""
    return verl.compute_score(
        data_source="kernel_bench_triton", solution_str=solution, ground_truth=truth, extra_info=extra, url=stub.url
    )  # fmt: skip


def test_a_score_with_the_columns_that_every_sample_has(stub: Stub) -> None:
    assert one(stub, "0.4") == {"score": 0.4, "masked": 0.0, "correct": 1.0, "status": "OK"}
    assert set(one(stub, "?")) == set(one(stub, "1"))
    one(stub, "1", entry_point="Swish", num_turns=None)
    assert [body["entry_point"] for body in stub.bodies] == [None, None, None, "Swish"]


def test_a_coroutine_gives_the_same(stub: Stub) -> None:
    asked: dict[str, Any] = {
        "data_source": "x",
        "solution_str": "0.4",
        "ground_truth": "ref",
        "extra_info": {},
    }
    assert asyncio.run(verl.compute_score_async(**asked, url=stub.url)) == one(stub, "0.4")


def test_what_verl_adds_to_the_call_is_left_alone_and_a_misspelt_option_is_named(
    stub: Stub, caplog: pytest.LogCaptureFixture
) -> None:
    """Where verl serves a reward model too, its managers pass the router's address and a tokenizer."""
    asked: dict[str, Any] = {
        "data_source": "x",
        "solution_str": "0.4",
        "ground_truth": "ref",
        "extra_info": {},
    }
    added = {"reward_router_address": "127.0.0.1:1", "reward_model_tokenizer": object()}
    assert verl.compute_score(**asked, **added, url=stub.url)["score"] == 0.4
    assert asyncio.run(verl.compute_score_async(**asked, **added, url=stub.url))["score"] == 0.4
    many = {f"{name}s": [value] for name, value in asked.items()}
    assert [one["score"] for one in verl.compute_scores(**many, **added, url=stub.url)] == [0.4]
    assert caplog.messages == []
    for _ in range(2):
        verl.compute_score(**asked, url=stub.url, retrys=3)
    (said,) = caplog.messages
    assert said.startswith("retrys is no option of the reward client (")
    assert "retries" in said


def test_alone_a_masked_sample_gets_what_its_problem_has_on_average_then_what_all_have(stub: Stub) -> None:
    assert one(stub, "?") == {"score": 0.0, "masked": 1.0, "correct": 0.0, "status": "UNSUPPORTED"}
    for solution in ("0.25", "0.75"):
        one(stub, solution)
    one(stub, "2", truth="another")
    assert one(stub, "?")["score"] == 0.5
    assert one(stub, "?", truth="another")["score"] == 2.0
    assert one(stub, "?", truth="never seen")["score"] == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["0.5", "-1", "0.25", "?"])), min_size=1, max_size=12
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_in_a_batch_a_masked_sample_leaves_the_mean_of_its_group_as_it_is(
    stub: Stub, asked: list[tuple[str, str]]
) -> None:
    found = verl.compute_scores(
        data_sources=["x"] * len(asked), solution_strs=[text for _, text in asked],
        ground_truths=[truth for truth, _ in asked], extra_infos=[{} for _ in asked], url=stub.url,
    )  # fmt: skip
    for group in "ab":
        scores = [score["score"] for score, (truth, _) in zip(found, asked, strict=True) if truth == group]
        known = [float(text) for truth, text in asked if truth == group and text != "?"]
        if known:
            assert sum(map(float, scores)) / len(scores) == pytest.approx(sum(known) / len(known))
        else:
            assert set(scores) <= {0.0}
    assert [score["masked"] for score in found] == [float(text == "?") for _, text in asked]


def test_a_fault_is_raised_and_is_never_a_score(stub: Stub) -> None:
    stub.always = lambda body: (500, "broken")
    with pytest.raises(RewardUnavailable):
        verl.compute_score("x", "1", "ref", {}, url=stub.url, retries=0)
    with pytest.raises(RewardUnavailable):
        verl.compute_scores(["x"], ["1"], ["ref"], [{}], url=stub.url, retries=0)
