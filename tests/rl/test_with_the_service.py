"""The real service and the real evaluator behind the trainers' functions, and the page that tells of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmill.rl.client import MAX_CODE, Ask, ClientOptions, RewardClient, RewardRefused
from kernelmill.rl.local import LocalGrader
from tests.conftest import ROOT, quick_command
from tests.evaluate.corpus import case
from tests.serve.served import TOKEN, Served

CASES = [case(name) for name in ("X_ok_swish", "X_mask_inverted", "A1_never_launched")]
ASKS = [Ask(one.reference, one.code, one.entry_point) for one in CASES]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs/rl.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(
        tmp_path_factory.mktemp("serve"), "--workers", 2, "--device", "cpu", start=quick_command
    ) as made:
        yield made.wait_until_ready()


def test_the_client_the_local_evaluator_and_the_truth_agree(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}"
    with RewardClient(ClientOptions(url, TOKEN, "correct")) as client:
        asked = client.grade_many(ASKS)
    grader = LocalGrader("correct", workers=2)
    try:
        local = [future.result() for future in [grader.submit(ask) for ask in ASKS]]
    finally:
        grader.close()
    assert [one.reward for one in asked] == [one.reward for one in local] == [1.0, 0.0, 0.0]
    assert [one.verdict for one in asked] == ["correct", "incorrect", "hack"]
    assert [one.verdict for one in local] == ["correct", "incorrect", "hack"]
    assert all(one.feedback for one in asked)


def test_a_reward_that_needs_a_time_is_masked_where_there_is_no_gpu_and_a_typo_is_refused(
    served: Served,
) -> None:
    url = f"http://127.0.0.1:{served.port}"
    with RewardClient(ClientOptions(url, TOKEN, "speedup")) as client:
        assert [one.reward for one in client.grade_many(ASKS)] == [None, 0.0, 0.0]
    with (
        RewardClient(ClientOptions(url, TOKEN, "spedup")) as client,
        pytest.raises(RewardRefused, match="spedup"),
    ):
        client.grade(*ASKS[0])
    with RewardClient(ClientOptions(url, mask=True)) as client, pytest.raises(RewardRefused, match="401"):
        client.grade(*ASKS[0])


def test_a_completion_without_end_gets_the_verdict_of_any_other_without_an_answer(served: Served) -> None:
    url, one_case = f"http://127.0.0.1:{served.port}", CASES[0]
    right = one_case.code
    endless = "and so on " * (MAX_CODE // 8)
    alike = {
        # A completion, and a short one that deserves the same.
        f"<think>{endless}<answer>": "<think>and so on <answer>",
        f"<think>{endless}</think>": "<think>and so on</think>",
        f"<think>well</think>{endless}": "<think>well</think>and so on",
        f"<answer>{endless}": "<answer>and so on",
        f"<answer>{right}</answer>{endless}<answer>{right}#</answer>": f"<answer>{right}</answer><answer>{right}#</answer>",
        f"<think>{endless}</think><answer>{right}</answer>": f"<answer>{right}</answer>",
    }
    code = f"x = 1  # {endless}\n{right}"
    # The last one is short enough to be sent as it is.
    unending = [code, f"<answer>{code}</answer>", endless, f"<think>{endless}", code[: MAX_CODE - 1]]
    with RewardClient(ClientOptions(url, TOKEN, "correct")) as client:
        long, short, too_much = (
            client.grade_many(Ask(one_case.reference, text, one_case.entry_point) for text in texts)
            for texts in (alike, alike.values(), unending)
        )
    assert [one.status for one in long] == [one.status for one in short] == ["FORMAT_ERROR"] * 5 + ["PASSED"]
    assert [one.reward for one in long] == [one.reward for one in short] == [0.0] * 5 + [1.0]
    assert [one.record["error"] for one in long] == [one.record["error"] for one in short]
    assert [(one.status, one.reward) for one in too_much] == [("FORMAT_ERROR", 0.0)] * 5
    assert all("characters of code" in one.record["error"] for one in too_much)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
@pytest.mark.heavy
def test_what_the_page_shows_runs(served: Served, number: int, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "KERNEL_REWARD_URL": f"http://127.0.0.1:{served.port}",
        "KERNEL_REWARD_TOKEN": TOKEN,
        "TMPDIR": str(tmp_path),
    }
    block = BLOCKS[number].replace("http://127.0.0.1:18188", environment["KERNEL_REWARD_URL"])
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr


def test_the_page_shows_every_trainer() -> None:
    assert len(BLOCKS) >= 5
    assert all(
        any(name in block for block in BLOCKS) for name in ("client", "trl", "verl", "slime", "verifiers")
    )
