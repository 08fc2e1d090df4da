"""Killed, stopped or refused at any moment: nothing is lost, paid twice or judged twice."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.llm.client import Endpoint, RequestRefused
from kernelmill.testing.fake_endpoint import CHAOS, FakeEndpoint
from tests.conftest import command, read_rows
from tests.generate.synthesize.answers import EMPTY, GOOD, PROSE, asked, manifest, problem, rows, synthesize

JOURNAL = Path("synthesize.journal.sqlite")


def kept(table: str) -> int:
    """Answers (`calls`) or verdicts (`facts`) that stand in the journal."""
    if not JOURNAL.exists():
        return 0
    connection = sqlite3.connect(f"file:{JOURNAL}?mode=ro", uri=True)
    try:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # it is being made
    finally:
        connection.close()


def killed_when(line: list[str], reached: Callable[[], bool]) -> None:
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not reached():
        assert process.poll() is None, "the run was over before it could be killed"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_kill_nine_while_judging_loses_nothing_and_judges_nothing_twice(tmp_path: Path) -> None:
    names = [f"Number{n}" for n in range(4)]
    problem(tmp_path / "problems", *names)

    def reply(body: dict[str, Any]) -> str:
        name = next(name for name in names if f'"""{name}"""' in asked(body))
        return GOOD.replace("<answer>", f"<answer>\n# {name}")

    with FakeEndpoint(reply) as endpoint:
        line = command(
            "synthesize", "--problems", "problems", "-o", "out.jsonl", "--base-url", endpoint.base_url, "--model", "fake",
            "--device", "cpu", "--workers", 1,
        )  # fmt: skip
        killed_when(line, lambda: kept("facts") >= 2)
        assert not Path("out.jsonl").exists()
        judged = kept("facts")
        assert 2 <= judged < 4
        assert kept("calls") == 4
        done = subprocess.run(line, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 4
    assert manifest()["judged"] == 4 - judged
    assert [row["verdict"]["verdict"] for row in rows()] == ["correct"] * 4
    first = Path("out.jsonl").read_bytes()
    # The endpoint is gone, and nobody misses it.
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert Path("out.jsonl").read_bytes() == first


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_nine_while_generating_pays_nothing_twice(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE, latency=0.05) as endpoint:
        line = command(
            "synthesize", "--problems", "problems", "-o", "out.jsonl", "--base-url", endpoint.base_url, "--model", "fake",
            "--device", "cpu", "--rollouts", 200, "-c", 4, "--turns", 2, "--max-unusable", 0,
        )  # fmt: skip
        paid = 0
        for _ in range(3):
            killed_when(line, lambda paid=paid: kept("calls") >= paid + 30)  # type: ignore[misc]
            paid = kept("calls")
        done = subprocess.run(line, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        # At a kill, four answers at the most were on their way and not yet in the journal.
        assert 400 <= endpoint.asked.total() <= 400 + 3 * 4
    assert kept("calls") == 400
    assert [row["num_turns"] for row in rows()] == [2.0] * 200


def test_a_misbehaving_server_costs_no_row(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    rates = dict.fromkeys(CHAOS, 0.04)
    with FakeEndpoint(lambda _: PROSE, rates, slow=0.1, retry_after=0.1) as endpoint:
        line = ("--rollouts", 100, "--timeout", 3, "-c", 16, "--max-unusable", 0)  # its model writes prose
        assert synthesize(endpoint.base_url, *line) == 0
        cut, empty, refused = (endpoint.behaved[name] for name in ("length", "empty", "refusal"))
    found = rows()
    assert [row["rollout"] for row in found] == list(range(100))
    errors = [row["verdict"]["error"] for row in found]
    assert sum("finish_reason length" in error for error in errors) == cut
    assert sum("is empty" in error for error in errors) == empty
    assert sum("refused" in error for error in errors) == refused
    assert {row["verdict"]["verdict"] for row in found} == {"incorrect"}


def test_calls_that_fail_are_owed_and_the_same_command_makes_them(tmp_path: Path) -> None:
    problem(tmp_path / "problems", "One", "Two", "Three")

    def reply(body: dict[str, Any]) -> str:
        if '"""Two"""' in asked(body) and broken:
            raise RuntimeError("a fault of the server's")
        return PROSE

    broken = True
    with FakeEndpoint(reply) as endpoint:
        assert synthesize(endpoint.base_url, "--server-retries", 0) == 3
        assert [row["example_id"] for row in rows()] == [0, 2]
        (rejected,) = read_rows(Path("out.rejected.jsonl"))
        assert "the call failed" in rejected["reason"]
        assert manifest()["statistics"]["owed"] == 1
        broken = False
        before = endpoint.asked.total()
        assert synthesize(endpoint.base_url, "--server-retries", 0) == 0
        assert endpoint.asked.total() == before + 1
    assert [row["example_id"] for row in rows()] == [0, 1, 2]


def test_a_budget_stops_the_run_and_counts_what_earlier_runs_paid(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        told = ("--rollouts", 20, "--turns", 2, "--price", "1000,1000", "-c", 1, "--max-unusable", 0)
        assert synthesize(endpoint.base_url, *told, "--max-cost", 5) == 3
        first = endpoint.asked.total()
        assert 1 <= first <= 6
        assert synthesize(endpoint.base_url, *told, "--max-cost", 5) == 3
        assert endpoint.asked.total() <= first + 1
        assert not Path("out.jsonl").exists()
        assert synthesize(endpoint.base_url, *told) == 0
        assert endpoint.asked.total() == 40


@pytest.mark.heavy
def test_ctrl_c_lets_what_is_in_flight_finish_and_the_same_command_goes_on(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE, latency=0.3) as endpoint:
        line = command(
            "synthesize", "--problems", "problems", "-o", "out.jsonl", "--base-url", endpoint.base_url, "--model", "fake",
            "--device", "cpu", "--rollouts", 40, "-c", 4, "--max-unusable", 0,
        )  # fmt: skip
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while kept("calls") < 4:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
        assert process.returncode == 130
        assert "run the same command to resume" in said
        assert kept("calls") == endpoint.asked.total() < 40
        assert subprocess.run(line, capture_output=True, timeout=240).returncode == 0
        assert endpoint.asked.total() == 40
    assert len(rows()) == 40


TOO_LONG = (
    "400: This model's maximum context length is 100 tokens. However, your request has 4000 input tokens."
)


def test_a_conversation_that_grows_too_long_ends_with_the_turns_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(tmp_path / "problems")
    call = Endpoint.call
    refused = []

    async def small(self: Endpoint, body: bytes) -> str:
        if b'"assistant"' in body:
            refused.append(body)
            raise RequestRefused(TOO_LONG, 400)
        return await call(self, body)

    monkeypatch.setattr(Endpoint, "call", small)
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "--turns", 3) == 0
    first = Path("out.jsonl").read_bytes()
    # The endpoint is gone, and nobody misses it.
    assert synthesize(endpoint.base_url, "--turns", 3) == 0
    assert Path("out.jsonl").read_bytes() == first
    assert len(refused) == 1
    (row,) = rows()
    assert row["num_turns"] == 1.0
    assert "maximum context length" in row["ended"]


def test_a_problem_that_is_too_long_is_rejected_with_the_servers_words_and_never_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(tmp_path / "problems", "One", "Two")
    call = Endpoint.call
    refused = []

    async def small(self: Endpoint, body: bytes) -> str:
        if b"Two" in body:
            refused.append(body)
            raise RequestRefused(TOO_LONG, 400)
        return await call(self, body)

    monkeypatch.setattr(Endpoint, "call", small)
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 2) == 0
    for _ in range(2):
        assert [row["example_id"] for row in rows()] == [0, 0]
        rejected = read_rows(Path("out.rejected.jsonl"))
        assert ["maximum context length" in row["reason"] for row in rejected] == [True, True]
        report = manifest()["statistics"]
        assert (report["problems"], report["rollouts"], report["too_long"], report["owed"]) == (1, 2, 2, 0)
        assert manifest()["rows"]["reasons"] == {"too long for the model": 2}
        assert synthesize(endpoint.base_url, "--rollouts", 2) == 0
    assert len(refused) == 2


@pytest.mark.parametrize("answered", [True, False])
def test_a_limit_of_ours_that_is_too_large_is_a_problems_trouble_only_where_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answered: bool
) -> None:
    problem(tmp_path / "problems", "Short", "Lengthy")
    call = Endpoint.call

    async def small(self: Endpoint, body: bytes) -> str:
        if answered and b"Lengthy" not in body:
            return await call(self, body)
        raise RequestRefused(
            "400: 'max_tokens' is too large: 90. This model's maximum context length is 100 tokens", 400
        )

    monkeypatch.setattr(Endpoint, "call", small)
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "-c", 1) == (0 if answered else 1)
    if answered:
        assert manifest()["statistics"]["too_long"] == 1
    else:
        assert "check --model and --sampling" in capsys.readouterr().err
        assert kept("facts") == 0


def test_trouble_of_the_evaluators_own_is_a_masked_row_and_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(tmp_path / "problems")
    judge = Evaluator.evaluate

    async def broken(self: Evaluator, pair: Pair) -> Verdict:
        raise RuntimeError("out of order")

    with FakeEndpoint(lambda _: EMPTY) as endpoint:
        monkeypatch.setattr(Evaluator, "evaluate", broken)
        assert synthesize(endpoint.base_url) == 3
        (row,) = rows()
        assert (row["reward"], row["reward_masked"]) == (0.0, True)
        assert row["verdict"]["status"] == "INFRA_ERROR"
        assert "out of order" in row["verdict"]["error"]
        monkeypatch.setattr(Evaluator, "evaluate", judge)
        assert synthesize(endpoint.base_url) == 0
        assert endpoint.asked.total() == 1
    (row,) = rows()
    assert (row["verdict"]["verdict"], row["reward_masked"]) == ("incorrect", False)


def test_a_reference_that_cannot_be_used_is_a_masked_row_and_not_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(tmp_path / "problems")
    judged: list[str] = []

    async def unusable(self: Evaluator, pair: Pair) -> Verdict:
        judged.append(pair.candidate)
        return Verdict(
            pair.id, "UNSUPPORTED", "interpreter", error="the reference cannot be used: NameError: x"
        )

    monkeypatch.setattr(Evaluator, "evaluate", unusable)
    with FakeEndpoint(lambda _: EMPTY) as endpoint:
        for _ in range(2):
            assert synthesize(endpoint.base_url) == 0
            (row,) = rows()
            assert (row["reward"], row["reward_masked"]) == (0.0, True)
            assert (row["verdict"]["status"], row["ended"]) == ("UNSUPPORTED", "inconclusive")
    assert len(judged) == 1


def test_a_run_in_test_mode_writes_beside_the_real_output(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 9, "--test-mode", "--stats") == 0
        assert endpoint.asked.total() == 5
    assert len(rows("out.test.jsonl")) == 5
    assert Path("out.stats.test.json").exists()
    assert not Path("out.jsonl").exists()
    assert not Path("out.stats.json").exists()


def test_with_several_tries_a_cut_answer_is_asked_for_again_and_its_time_and_tokens_count(
    tmp_path: Path,
) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE, ["length", "empty", "ok"], latency=0.1) as endpoint:
        assert synthesize(endpoint.base_url, "--tries", 3, "--price", "1,1") == 0
        assert endpoint.asked.total() == 3
        assert synthesize(endpoint.base_url, "--tries", 3, "--price", "1,1") == 0
        assert endpoint.asked.total() == 3
    (row,) = rows()
    assert row["finish_reason"] == "stop"
    assert row["generation_ms"] >= 300
    report = manifest()["statistics"]
    assert report["tokens"]["out"] == row["tokens_out"] == 3 * (len(PROSE) // 4 + 1)
    assert report["cost_usd"] == pytest.approx((row["tokens_in"] + row["tokens_out"]) / 1e6)


def test_a_model_that_writes_no_kernels_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem(tmp_path / "problems", *(f"Number{n}" for n in range(20)))
    with FakeEndpoint(lambda _: PROSE, latency=0.05) as endpoint:
        assert synthesize(endpoint.base_url, "--max-unusable", 5, "-c", 2, "--rollouts", 3) == 3
        assert endpoint.asked.total() <= 5 + 2
        assert "5 answers in a row could not be used" in capsys.readouterr().err
