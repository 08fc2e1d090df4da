"""The engine against a real HTTP server that misbehaves on script."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from kernelmill import config
from kernelmill.errors import ConfigError, EndpointError, Interrupted, Stopped
from kernelmill.llm import engine
from kernelmill.llm.journal import JournalReader
from kernelmill.testing.fake_endpoint import CHAOS, FakeEndpoint
from tests.llm.harness import Run, right


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_PAUSES", (0.02, 0.2))


def test_every_row_is_answered_in_the_order_of_the_source(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        run = Run(tmp_path, list(range(40)), endpoint.base_url)()
        assert [row["n"] for row in run.rows] == [n for n in range(40) if n != 7]
        assert all(row["said"] == right(row["n"]) for row in run.rows)
        assert [row["reason"] for row in run.rejected] == ["a seven"]
        assert endpoint.asked.total() == run.stats.calls == 39


def test_a_second_run_asks_nothing_and_writes_the_same_bytes(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        Run(tmp_path, list(range(20)), endpoint.base_url)()
        first = (tmp_path / "out.jsonl").read_bytes()
        again = Run(tmp_path, [], endpoint.base_url)()
        assert (tmp_path / "out.jsonl").read_bytes() == first
        assert again.stats.calls == 0
        assert endpoint.asked.total() == 19


def test_the_same_question_in_two_rows_is_asked_once(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        run = Run(tmp_path, [1, 2, 1, 1], endpoint.base_url)()
        assert [row["n"] for row in run.rows] == [1, 2, 1, 1]
        assert endpoint.asked.total() == 2


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"sampling": {"temperature": 0.5}}, {"sampling": {"extra_body": {"x": 1}}}]
)
def test_another_request_is_another_key(tmp_path: Path, change: dict[str, object]) -> None:
    with FakeEndpoint() as endpoint:
        Run(tmp_path, [1, 2], endpoint.base_url)()
        run = Run(tmp_path, [], endpoint.base_url)
        run.settings = config.LLMSettings(**{"base_url": endpoint.base_url, "model": "fake", **change})
        run()
        assert run.stats.calls == 2


@pytest.mark.parametrize("behaviour", [name for name in CHAOS if name != "slow"])
def test_one_misbehaviour_costs_a_retry_and_no_row(tmp_path: Path, behaviour: str) -> None:
    with FakeEndpoint(script=[behaviour], retry_after=0.2) as endpoint:
        run = Run(tmp_path, [1, 2, 3], endpoint.base_url, timeout=0.5)()
        assert [(row["n"], row["said"]) for row in run.rows] == [(n, right(n)) for n in (1, 2, 3)]
        assert run.stats.retries.total() == 1
        assert endpoint.asked.total() == 4


@pytest.mark.parametrize("behaviour", ["length", "empty", "tags", "refusal"])
def test_an_unusable_answer_is_asked_three_times_then_rejected_with_what_was_said(
    tmp_path: Path, behaviour: str
) -> None:
    with FakeEndpoint(script=[behaviour] * 3) as endpoint:
        run = Run(tmp_path, [1], endpoint.base_url)()
        assert run.rows == []
        assert len(run.rejected[0]["attempts"]) == 3
        assert "no usable answer in 3 tries" in run.rejected[0]["reason"]
        assert endpoint.asked.total() == 3
        # It was paid for three times; asking again is not for the next run to decide.
        Run(tmp_path, [], endpoint.base_url)()
        assert endpoint.asked.total() == 3


def test_tries_are_counted_over_runs(tmp_path: Path) -> None:
    with FakeEndpoint(script=["tags", "tags", "ok"]) as endpoint:
        Run(tmp_path, [1], endpoint.base_url, tries=1)()
        run = Run(tmp_path, [], endpoint.base_url, tries=3)()
        assert run.stats.calls == 2
        assert run.rows[0]["said"] == right(1)


def test_an_item_that_cannot_be_asked_is_rejected_without_a_call(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        run = Run(tmp_path, [-1, 1], endpoint.base_url)()
        assert [row["reason"] for row in run.rejected] == ["cannot be asked"]
        assert endpoint.asked.total() == 1


def test_a_call_that_keeps_failing_is_owed_and_asked_again_by_the_next_run(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda key, number, attempt: "500" if number < 4 else "ok") as endpoint:
        run = Run(tmp_path, [1], endpoint.base_url, server_retries=3)()
        assert run.owed == 1
        assert "the call failed 4 times; the last: 500" in run.rejected[0]["reason"]
        again = Run(tmp_path, [], endpoint.base_url)()
        assert again.rows[0]["said"] == right(1)


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("400", "refuses our requests"),
        ("401", "refused the key"),
        ("403", "forbids this"),
        ("404", "does not know model 'fake'"),
        ("quota", "out of credit"),
    ],
)
def test_what_no_retry_will_mend_stops_the_run_at_once(tmp_path: Path, behaviour: str, message: str) -> None:
    with FakeEndpoint(script=lambda *_: behaviour) as endpoint:
        started = time.monotonic()
        with pytest.raises(EndpointError, match=message) as caught:
            Run(tmp_path, list(range(500)), endpoint.base_url)()
        assert time.monotonic() - started < 5
        assert endpoint.asked.total() <= 16 + 3  # what was in flight together, and the few that make sure
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "out.jsonl").exists()


def test_a_request_that_the_server_refuses_later_on_costs_one_row(tmp_path: Path) -> None:
    with FakeEndpoint(script=["ok", "ok", "400"]) as endpoint:
        run = Run(tmp_path, [1, 2, 3, 4, 5], endpoint.base_url, concurrency=1)()
        assert [row["n"] for row in run.rows] == [1, 2, 4, 5]
        assert "refused by the server (400" in run.rejected[0]["reason"]


def test_a_refused_request_at_the_very_start_does_not_stop_the_others(tmp_path: Path) -> None:
    with FakeEndpoint(script=["400", "ok"], latency=0.2) as endpoint:
        run = Run(tmp_path, [1, 2, 3, 4, 5], endpoint.base_url)()
        assert len(run.rows) == 4
        assert run.owed == 1
        # What is owed is asked again, and now that the others are answered it is a row's trouble for certain.
        again = Run(tmp_path, [], endpoint.base_url)()
        assert len(again.rows) == 5


def test_ctrl_c_is_not_held_up_by_a_long_retry_after(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "429-retry-after", retry_after=3600) as endpoint:
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            Run(tmp_path, list(range(10, 60)), endpoint.base_url)()
        assert time.monotonic() - started < 5


def test_a_long_retry_after_does_not_outlast_the_breaker(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "429-retry-after", retry_after=3600) as endpoint:
        started = time.monotonic()
        with pytest.raises(Stopped, match="no call has succeeded"):
            Run(tmp_path, list(range(10, 60)), endpoint.base_url, give_up_after=1 / 60)()
        assert time.monotonic() - started < 10


def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    with FakeEndpoint(script=["429-retry-after"], retry_after=1.2) as endpoint:
        started = time.monotonic()
        Run(tmp_path, [1, 2, 3], endpoint.base_url, concurrency=1)()
        assert time.monotonic() - started >= 1.2


def test_the_breaker_stops_a_run_that_gets_no_answer(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "503") as endpoint:
        started = time.monotonic()
        with pytest.raises(Stopped, match=r"no call has succeeded for .* 503"):
            Run(tmp_path, list(range(20)), endpoint.base_url, give_up_after=1 / 60)()
        assert 1.0 <= time.monotonic() - started < 10


def test_a_server_that_hangs_for_good_trips_the_breaker_too(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "hang") as endpoint, pytest.raises(Stopped, match="no answer within"):
        Run(tmp_path, [1, 2], endpoint.base_url, give_up_after=1 / 60, timeout=0.4)()


def test_a_wrong_address_is_told_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_CONNECT_GRACE", 0.5)
    started = time.monotonic()
    with pytest.raises(Stopped, match="could not be reached"):
        Run(tmp_path, [1], "http://127.0.0.1:9/v1", server_retries=1000)()
    assert time.monotonic() - started < 10


def test_concurrency_shrinks_on_429_and_recovers(tmp_path: Path) -> None:
    with FakeEndpoint(
        script=lambda key, number, attempt: "429" if 50 <= number < 70 else "ok", latency=0.01
    ) as endpoint:
        run = Run(tmp_path, list(range(10, 1210)), endpoint.base_url, concurrency=32)()
        assert len(run.rows) == 1200
        assert endpoint.most_in_flight == 32


def test_cost_is_by_the_price_table_and_unknown_without_one(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        (tmp_path / "a").mkdir()
        unpriced = Run(tmp_path / "a", [1], endpoint.base_url)()
        assert unpriced.stats.cost is None
        priced = Run(tmp_path, [1], endpoint.base_url, price="1,10")()
        stats = priced.stats
        assert stats.cost == pytest.approx((stats.tokens_in * 1 + stats.tokens_out * 10) / 1e6)
        assert stats.tokens_reasoning > 0


def test_max_cost_stops_before_it_is_passed_and_a_higher_one_goes_on(tmp_path: Path) -> None:
    with FakeEndpoint(latency=0.01) as endpoint:
        one = Run(tmp_path, list(range(100, 200)), endpoint.base_url, price="1000,1000", max_cost=1.0)
        with pytest.raises(Stopped, match="--max-cost 1 would be passed"):
            one()
        assert one.stats.cost is not None
        assert 0.9 < one.stats.cost <= 1.0 + 1e-9
        # The budget is the job's, not the run's: however often it is started, it holds.
        for _ in range(3):
            with pytest.raises(Stopped, match="would be passed"):
                Run(tmp_path, [], endpoint.base_url, price="1000,1000", max_cost=1.0)()
        with JournalReader(tmp_path / "journal.sqlite") as journal:
            assert sum(call.cost or 0 for call in journal.calls()) <= 1.0 + 1e-9
        three = Run(tmp_path, [], endpoint.base_url, price="1000,1000", max_cost=1000.0)()
        assert len(three.rows) == 100
        assert max(endpoint.asked.values()) == 1


def test_a_small_budget_is_not_passed_by_the_first_burst(tmp_path: Path) -> None:
    """Before the first answer nobody knows how long one is; 256 calls at once must not find out together."""
    answer = "<difficulty>" + "x" * 8000
    with FakeEndpoint(reply=lambda _: answer, latency=0.05) as endpoint:
        run = Run(
            tmp_path, list(range(100, 600)), endpoint.base_url, price="1,10", max_cost=0.5, concurrency=256
        )
        with pytest.raises(Stopped, match="would be passed"):
            run()
        assert run.stats.cost is not None
        assert 0.4 < run.stats.cost <= 0.5


def test_max_cost_without_a_price_is_refused() -> None:
    with pytest.raises(ConfigError, match="--max-cost needs the price of fake"):
        Run(Path(), [1], "http://127.0.0.1:9/v1", max_cost=1.0)()


def test_the_first_interrupt_finishes_what_is_in_flight_and_keeps_it(tmp_path: Path) -> None:
    with FakeEndpoint(latency=0.5) as endpoint:
        run = Run(tmp_path, list(range(10, 100)), endpoint.base_url, concurrency=8)
        threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(Interrupted):
            run()
        with JournalReader(tmp_path / "journal.sqlite") as journal:
            assert len(list(journal.calls())) == endpoint.asked.total() == endpoint.answered.total() == 16
        Run(tmp_path, [], endpoint.base_url)()
        assert endpoint.asked.total() == 90


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    with FakeEndpoint(latency=30) as endpoint:
        for after in (0.5, 1.0):
            threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT)).start()
        started = time.monotonic()
        with pytest.raises(Interrupted):
            Run(tmp_path, list(range(10, 50)), endpoint.base_url, timeout=60)()
        assert time.monotonic() - started < 5


def test_the_key_and_the_team_are_sent_and_written_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "sk-prime-secret-1234")
    monkeypatch.setenv("PRIME_TEAM_ID", "team-secret-5678")
    config.environment.cache_clear()
    with FakeEndpoint() as endpoint:
        Run(tmp_path, [1], endpoint.base_url, api_key_var="PRIME_API_KEY")()
        headers = endpoint.seen[0].headers
    assert headers["authorization"] == "Bearer sk-prime-secret-1234"
    assert headers["x-prime-team-id"] == "team-secret-5678"
    for path in tmp_path.iterdir():
        assert b"sk-prime-secret" not in path.read_bytes(), path.name


def test_a_key_is_never_sent_to_an_endpoint_it_was_not_meant_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "sk-prime-secret-1234")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai-secret")
    monkeypatch.setenv("PRIME_TEAM_ID", "team-secret-5678")
    config.environment.cache_clear()
    with FakeEndpoint() as endpoint:
        Run(tmp_path, [1], endpoint.base_url)()
        assert "secret" not in json.dumps(endpoint.seen[0].headers)


def test_a_server_that_echoes_the_key_does_not_make_us_print_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelmill.testing import fake_endpoint

    monkeypatch.setenv("KERNELMILL_API_KEY", "sk-echoed-secret")
    config.environment.cache_clear()
    monkeypatch.setitem(
        fake_endpoint._ERRORS, "401", (401, "invalid_api_key", "Incorrect API key: sk-echoed-secret")
    )
    with FakeEndpoint(script=lambda *_: "401") as endpoint, pytest.raises(EndpointError) as caught:
        Run(tmp_path, [1], endpoint.base_url, api_key_var="KERNELMILL_API_KEY")()
    assert "sk-echoed" not in str(caught.value)


def test_the_request_that_is_sent_is_the_one_in_the_journal(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        Run(tmp_path, [1], endpoint.base_url, sampling={"temperature": 0.25, "extra_body": {"top_k": 5}})()
        assert endpoint.seen[0].body == {
            "model": "fake",
            "messages": [{"role": "user", "content": "question 1"}],
            "temperature": 0.25,
            "top_k": 5,
        }
        with JournalReader(tmp_path / "journal.sqlite") as journal:
            assert json.loads(next(journal.calls()).request) == endpoint.seen[0].body


def test_a_dripping_server_does_not_hold_a_call_beyond_its_time(tmp_path: Path) -> None:
    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            )
            for _ in range(600):
                connection.sendall(b" ")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        started = time.monotonic()
        base_url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        run = Run(tmp_path, [1], base_url, timeout=0.5, server_retries=0)()
        assert time.monotonic() - started < 5
        assert "no answer within 0.5 s" in run.rejected[0]["reason"]
        thread.join(10)
