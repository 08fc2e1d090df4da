"""`verifiers` itself, against the fake endpoint: rollouts, rewards and masks as its own runner records them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.resources import bundled
from kernelmill.errors import BadRow, SourceError
from kernelmill.rl import client, shared
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT
from tests.rl.stub import Answer, Body, Stub, verdict

vf = pytest.importorskip("verifiers", minversion="0.3")

pytestmark = pytest.mark.filterwarnings("default")  # its own are not ours to mend


@pytest.fixture(autouse=True)
def signals_are_given_back() -> Iterator[None]:
    """An environment of verifiers takes the signals of the process."""
    import signal

    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
    shared.close()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    prompt = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a problem"}]
    extra = {"level": 1, "problem_id": "1", "entry_point": "Swish"}
    made = [
        {
            "prompt": prompt,
            "label": "ref 0",
            "extra_info": {"level": 1},
            "instance_id": "lv1_0",
        },  # as for slime
        {"example_id": 1, "prompt": prompt, "answer": "ref 1", "info": {**extra, "instance_id": "lv1_1"}},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
    return path


def rollouts(env: Any, endpoint: FakeEndpoint, each: int = 1, **more: Any) -> list[dict[str, Any]]:
    """What verifiers' runner gives for every row, `each` times."""
    from verifiers.types import ClientConfig

    asked = ClientConfig(api_base_url=endpoint.base_url, api_key_var="A_KEY", max_retries=0)
    found = asyncio.run(
        env.evaluate(
            client=asked, model="fake", num_examples=2, rollouts_per_example=each, on_progress=lambda *a: None, **more
        )
    )  # fmt: skip
    return list(found["outputs"])


@pytest.fixture
def a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "x")


def by_turns(*answers: str) -> Any:
    """A model that says one thing after the other."""
    left = list(answers)
    return lambda request: left.pop(0)


@pytest.mark.usefixtures("a_key")
def test_a_rollout_has_the_reward_of_its_candidate(rows: Path) -> None:
    with Stub() as stub, FakeEndpoint(reply=lambda request: "0.5") as endpoint:
        env = vf.load_environment("kernelmill-env", data=str(rows), url=stub.url, reward="default")
        found = rollouts(env, endpoint)
    assert [(one["reward"], one["error"]) for one in found] == [(0.5, None)] * 2
    assert [one["kernelmill_masked"] for one in found] == [0.0, 0.0]
    assert sorted((body["reference"], body["entry_point"], body["reward"]) for body in stub.bodies) == [
        ("ref 0", None, "default"), ("ref 1", "Swish", "default"),
    ]  # fmt: skip


@pytest.mark.usefixtures("a_key")
def test_a_masked_rollout_has_an_error_and_no_advantage_and_leaves_its_group_alone(rows: Path) -> None:
    with Stub() as stub, FakeEndpoint(reply=by_turns("1", "?", "0.5", "1", "?", "0.5")) as endpoint:
        env = vf.load_environment("kernelmill-env", data=str(rows), url=stub.url)
        found = rollouts(env, endpoint, each=3, max_concurrent=1, state_columns=["trajectory"])
    for group in (found[:3], found[3:]):
        masked = [one for one in group if one["error"]]
        assert [one["error"]["error"] for one in masked] == ["Masked"]
        # The steps' own: the rollout's is written again by whichever rubric comes last.
        gains = {id(one): one["trajectory"][0]["advantage"] for one in group}
        assert [(one["reward"], gains[id(one)]) for one in masked] == [(0.75, 0.0)]
        others = sorted((one["reward"], gains[id(one)]) for one in group if not one["error"])
        assert others == [(0.5, -0.25), (1.0, 0.25)]


@pytest.mark.usefixtures("a_key")
def test_trouble_of_ours_is_an_error_that_verifiers_tries_again_and_never_a_reward(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_FIRST_WAIT", 0.001)
    with (
        Stub(always=lambda body: (500, "broken")) as stub,
        FakeEndpoint(reply=lambda request: "1") as endpoint,
    ):
        env = vf.load_environment("kernelmill-env", data=str(rows), url=stub.url)
        failed = rollouts(env, endpoint)
        assert [one["error"]["error"] for one in failed] == ["InfraError"] * 2
        assert [one["kernelmill_masked"] for one in failed] == [1.0, 1.0]
        stub.script[:] = [(500, "broken")] * 6
        stub.always = lambda body: (200, verdict(0.25))
        mended = rollouts(env, endpoint, max_retries=2)
    assert [(one["reward"], one["error"]) for one in mended] == [(0.25, None)] * 2


def wrong_until_good(body: Body) -> Answer:
    good = body["candidate"] == "good"
    return 200, verdict(
        1.0 if good else 0.1, "correct" if good else "incorrect", feedback="the mask is wrong"
    )


@pytest.mark.usefixtures("a_key")
def test_with_several_turns_a_wrong_candidate_is_told_why_until_it_is_right(rows: Path) -> None:
    with (
        Stub(always=wrong_until_good) as stub,
        FakeEndpoint(reply=by_turns("bad", "good", "bad", "bad", "bad")) as endpoint,
    ):
        env = vf.load_environment("kernelmill-env", data=str(rows), url=stub.url, turns=3)
        right, wrong = rollouts(env, endpoint, max_concurrent=1)
    assert [message["content"] for message in right["completion"]] == ["bad", "the mask is wrong", "good"]
    assert (right["reward"], right["stop_condition"], right["num_turns"]) == (1.0, "is_correct", 2)
    assert (wrong["reward"], wrong["stop_condition"], wrong["num_turns"]) == (0.1, "max_turns_reached", 3)


@pytest.mark.slow
@pytest.mark.usefixtures("a_key")
@pytest.mark.heavy
def test_without_a_service_candidates_are_judged_by_an_evaluator_of_this_process(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    prompt = [{"role": "user", "content": "a problem"}]
    rows = [
        {"prompt": prompt, "answer": bundled("data/problems/level1/9_RowSoftmax.py").read_text(), "info": {}}
    ] * 2
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    kernel = (ROOT / "data/samples/kernels/row_softmax.py").read_text(encoding="utf-8")
    with FakeEndpoint(reply=by_turns(f"<answer>{kernel}</answer>", "x = 1")) as endpoint:
        env = vf.load_environment("kernelmill-env", data=str(data), local=True, reward="correct", workers=2)
        found = rollouts(env, endpoint, max_concurrent=1)
        asyncio.run(env._teardown())
    assert [(one["reward"], one["error"]) for one in found] == [(1.0, None), (0.0, None)]


@pytest.mark.slow
@pytest.mark.heavy
def test_a_process_that_ends_ends_its_evaluator_without_a_word(rows: Path) -> None:
    script = (
        "from kernelmill.rl.client import Ask\nfrom kernelmill.rl.verifiers import load_environment\n"
        f"env = load_environment({str(rows)!r}, local=True, workers=1)\n"
        "print(env._grader.submit(Ask('class Model: pass', 'x = 1')).result().verdict)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.strip()) == (0, "incorrect")
    assert "Traceback" not in done.stderr


def test_rows_that_are_none_are_told_with_their_line(tmp_path: Path) -> None:
    from kernelmill.rl.verifiers import load_environment

    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "text", "label": "x"}\n', encoding="utf-8")
    with pytest.raises(BadRow, match=r"bad.jsonl:1: field \$.prompt"):
        load_environment(bad)
    bad.write_text('{"prompt": [{"role": "user", "content": "x"}], "label": 1}\n', encoding="utf-8")
    with pytest.raises(BadRow, match=r"\$.label"):
        load_environment(bad)
    bad.write_text(
        '{"prompt": [{"role": "user", "content": "x"}], "label": "x", "info": "{}"}\n', encoding="utf-8"
    )
    with pytest.raises(BadRow, match=r"\$.info"):
        load_environment(bad)
    with pytest.raises(SourceError, match="cannot be read"):
        load_environment(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(SourceError, match="no row"):
        load_environment(tmp_path / "empty.jsonl")
    with pytest.raises(ValueError, match="turns=0"):
        load_environment(bad, turns=0)


def test_the_taskset_of_v1_scores_a_trace_and_a_masked_one_fails(rows: Path) -> None:
    import verifiers.v1 as v1

    with Stub() as stub:
        config = v1.taskset_config_type("kernelmill-env")(
            id="kernelmill-env", data=rows, task={"url": stub.url, "reward_name": "default"}
        )
        tasks = list(v1.load_taskset(config))
        assert [(task.data.name, task.data.reference, task.data.idx) for task in tasks] == [
            ("lv1_0", "ref 0", 0), ("lv1_1", "ref 1", 1),
        ]  # fmt: skip
        known = traced(v1, tasks[1], "0.5")
        asyncio.run(tasks[1].score(known))
        assert known.reward == 0.5
        with pytest.raises(v1.TaskError, match="masked: inconclusive"):
            asyncio.run(tasks[0].score(traced(v1, tasks[0], "?")))
    assert stub.bodies[0] == {
        "reference": "ref 1",
        "candidate": "0.5",
        "entry_point": "Swish",
        "reward": "default",
    }


def traced(v1: Any, task: Any, said: str) -> Any:
    """A trace in which the model has said this."""

    class Said(v1.Trace):  # type: ignore[misc]
        @property
        def last_reply(self) -> str:
            return said

    return Said.model_construct(
        task=v1.TraceTask(type="KernelTask", data=task.data, key=task.key, hash=task.hash),
        rewards={},
        metrics={},
    )
