"""The engine against a real HTTP server that misbehaves on script."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill.errors import ConfigError, EndpointError, Interrupted, Stopped
from kernelmill.llm import engine, limiter, retry
from kernelmill.llm.client import Endpoint
from kernelmill.llm.journal import JournalReader
from kernelmill.settings import config
from kernelmill.settings.base import LLMSettings
from kernelmill.testing.fake_endpoint import CHAOS, FakeEndpoint
from tests.llm.harness import Run, right


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.02, 0.2))
    monkeypatch.setattr(limiter, "_LONGEST_HOLD", 0.5)


def interrupt_when(*moments: Callable[[], bool]) -> None:
    """Ctrl-C at each of these moments, one after the other."""

    def watch() -> None:
        for reached in moments:
            while not reached():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()


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
        run.settings = LLMSettings(**{"base_url": endpoint.base_url, "model": "fake", **change})
        run()
        assert run.stats.calls == 2


@pytest.mark.parametrize("behaviour", [name for name in CHAOS if name != "slow"])
def test_one_misbehaviour_costs_a_retry_and_no_row(tmp_path: Path, behaviour: str) -> None:
    # Short where it must pass, and long enough for the answers that are on their way.
    timeout = 3.0 if behaviour == "hang" else 60.0
    with FakeEndpoint(script=[behaviour], retry_after=0.2) as endpoint:
        run = Run(tmp_path, [1, 2, 3], endpoint.base_url, timeout=timeout)()
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
        assert run.pending == 1
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
        run = Run(tmp_path, list(range(500)), endpoint.base_url)
        with pytest.raises(EndpointError, match=message) as caught:
            run()
        assert not run.stats.retries
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
        assert run.pending == 1
        # What is owed is asked again, and now that the others are answered it is a row's trouble for certain.
        again = Run(tmp_path, [], endpoint.base_url)()
        assert len(again.rows) == 5


def test_ctrl_c_is_not_held_up_by_a_long_retry_after(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "429-retry-after", retry_after=3600) as endpoint:
        interrupt_when(lambda: endpoint.asked.total() >= 16 and endpoint.in_flight == 0)
        with pytest.raises(Interrupted):  # and not `Stopped`, by the breaker, half an hour later
            Run(tmp_path, list(range(10, 60)), endpoint.base_url)()


def test_a_long_retry_after_does_not_outlast_the_breaker(tmp_path: Path) -> None:
    endpoint = FakeEndpoint(script=lambda *_: "429-retry-after", retry_after=3600)
    with endpoint, pytest.raises(Stopped, match="no call has succeeded"):  # an hour is more than any test has
        Run(tmp_path, list(range(10, 60)), endpoint.base_url, give_up_after=1 / 60, timeout=1.0)()


def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    with FakeEndpoint(script=["429-retry-after"], retry_after=1.2) as endpoint:
        started = time.monotonic()
        Run(tmp_path, [1, 2, 3], endpoint.base_url, concurrency=1)()
        assert time.monotonic() - started >= 1.2


def test_the_breaker_stops_a_run_that_gets_no_answer(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "503") as endpoint:
        started = time.monotonic()
        # On a busy machine the last answer may come too late.
        with pytest.raises(Stopped, match=r"no call has succeeded for .*( 503|no answer within)"):
            Run(tmp_path, list(range(20)), endpoint.base_url, give_up_after=2 / 60, timeout=2.0)()
        assert time.monotonic() - started >= 2.0
        assert endpoint.behaved["503"] >= 20


def test_a_server_that_hangs_for_good_trips_the_breaker_too(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda *_: "hang") as endpoint, pytest.raises(Stopped, match="no answer within"):
        Run(tmp_path, [1, 2], endpoint.base_url, give_up_after=1 / 60, timeout=0.4)()


def test_a_wrong_address_is_told_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_CONNECT_GRACE", 0.5)
    # A server that was reached once is waited for longer than any test has.
    with pytest.raises(Stopped, match="could not be reached"):
        Run(tmp_path, [1], "http://127.0.0.1:9/v1", server_retries=1_000_000)()


def test_concurrency_shrinks_on_429_and_recovers(tmp_path: Path) -> None:
    with FakeEndpoint(
        script=lambda key, number, attempt: "429" if 50 <= number < 70 else "ok", latency=0.05
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

    def interrupt_the_second_round(key: str, number: int, attempt: int) -> str:
        if number == 15:
            os.kill(os.getpid(), signal.SIGINT)
        return "ok"

    with FakeEndpoint(script=interrupt_the_second_round, latency=1.0) as endpoint:
        run = Run(tmp_path, list(range(10, 100)), endpoint.base_url, concurrency=8)
        with pytest.raises(Interrupted):
            run()
        with JournalReader(tmp_path / "journal.sqlite") as journal:
            assert len(list(journal.calls())) == endpoint.asked.total() == endpoint.answered.total() == 16
        Run(tmp_path, [], endpoint.base_url, concurrency=64)()
        assert endpoint.asked.total() == 90


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    with FakeEndpoint(latency=3600) as endpoint:
        run = Run(tmp_path, list(range(10, 50)), endpoint.base_url, timeout=3600)
        interrupt_when(lambda: endpoint.in_flight == 16, lambda: run.control.stopping.is_set())
        with pytest.raises(Interrupted):
            run()
        assert endpoint.answered.total() == 0


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
    given_up = threading.Event()

    def drip(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            )
            while not given_up.wait(0.05):
                connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        base_url = f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        run = Run(tmp_path, [1], base_url, timeout=0.5, server_retries=0)()
        given_up.set()
        assert "no answer within 0.5 s" in run.rejected[0]["reason"]
        thread.join()


ODD_BODIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "counts beyond any integer": lambda body: (
        body | {"usage": {"prompt_tokens": 10**19, "completion_tokens": 1}}
    ),
    "counts as text": lambda body: body | {"usage": {"prompt_tokens": "12", "completion_tokens": "many"}},
    "negative counts": lambda body: body | {"usage": {"prompt_tokens": -5, "completion_tokens": 1.5}},
    "usage as a list": lambda body: body | {"usage": []},
    "no usage": lambda body: body | {"usage": None},
    "details as a list": lambda body: body | {"usage": {"completion_tokens_details": [], "prompt_tokens": 1}},
    "NaN in it": lambda body: body | {"logprobs": float("nan")},
    "a second choice that is none": lambda body: body | {"choices": [*body["choices"], 7]},
    "refusal false": lambda body: _message(body, refusal=False),
    "half a surrogate pair": lambda body: _message(
        body, content=body["choices"][0]["message"]["content"] + "\ud800"
    ),
    "content in parts": lambda body: _message(
        body, content=[{"text": None}, 3, {"type": "text", "text": body["choices"][0]["message"]["content"]}]
    ),
}


def _message(body: dict[str, Any], **change: Any) -> dict[str, Any]:
    body["choices"][0]["message"] |= change
    return body


@pytest.mark.parametrize("odd", ODD_BODIES)
def test_a_paid_answer_is_not_lost_to_a_field_that_nobody_needs(tmp_path: Path, odd: str) -> None:
    with FakeEndpoint(amend=ODD_BODIES[odd]) as endpoint:
        run = Run(tmp_path, [1, 2], endpoint.base_url, price="1,1")()
        assert [row["said"] for row in run.rows] == [right(1), right(2)]
        assert endpoint.asked.total() == 2
        assert run.stats.cost is None or run.stats.cost > 0


RAW_ANSWERS = {
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a strange charset": b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=zlib\r\nContent-Length: 2\r\n\r\n{}",
    "an error page": b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
    "an error with status 200": b'HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\n{"error": {"message": 1}}'[
        :-1
    ],
    "no choices": b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"choices": []}',
    "a header flood": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 50_000 + b"\r\n",
    "a date beyond all dates": b"HTTP/1.1 500 X\r\nRetry-After: Mon, 01 Jan 2030 00:00:00 +99999999999999999999\r\nContent-Length: 0\r\n\r\n",
}


@contextlib.contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """Sends these bytes to whoever asks, and closes."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 20)
            with contextlib.suppress(OSError):
                self.request.sendall(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.mark.parametrize("answer", RAW_ANSWERS)
def test_no_answer_of_a_server_ends_the_run_with_a_traceback(tmp_path: Path, answer: str) -> None:
    with raw_server(RAW_ANSWERS[answer]) as base_url:
        run = Run(tmp_path, [1, 2], base_url, server_retries=2)()
        assert run.pending == 2
        assert all("the call failed 3 times" in row["reason"] for row in run.rejected)


def test_a_redirect_is_not_followed_and_nothing_is_sent_to_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    with FakeEndpoint() as stranger:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {stranger.base_url}/chat/completions\r\nContent-Length: 0\r\n\r\n"
        with raw_server(moved.encode()) as base_url, pytest.raises(EndpointError, match="sends us elsewhere"):
            Run(tmp_path, [1], base_url)()
        assert stranger.asked.total() == 0
        Run(tmp_path, [2], stranger.base_url)()
        assert "secret" not in json.dumps(stranger.seen[0].headers)


def test_an_enormous_retry_after_is_waited_for_no_longer_than_the_runs_patience(tmp_path: Path) -> None:
    with FakeEndpoint(script=["429-retry-after"], retry_after=99_999, latency=0.2) as endpoint:
        # A day is more than any test has.
        run = Run(tmp_path, [1, 2, 3], endpoint.base_url, give_up_after=2 / 60)()
        assert len(run.rows) == 3


def test_one_push_back_does_not_let_many_calls_pass_the_budget_together(tmp_path: Path) -> None:
    answer = "<difficulty>" + "x" * 8000
    with FakeEndpoint(
        reply=lambda _: answer, script=["429-retry-after"], retry_after=0.5, latency=0.05
    ) as endpoint:
        run = Run(
            tmp_path, list(range(100, 160)), endpoint.base_url, price="1.75,14", max_cost=0.1, concurrency=60
        )
        with pytest.raises(Stopped, match="would be passed"):
            run()
        assert run.stats.cost is not None
        assert run.stats.cost <= 0.1 + 0.03


def test_a_request_that_is_always_pushed_back_costs_one_row_and_not_the_run(tmp_path: Path) -> None:
    unwanted = []

    def script(key: str, number: int, attempt: int) -> str:
        if number == 0:
            unwanted.append(key)
        return "503" if key in unwanted else "ok"

    with FakeEndpoint(script=script, latency=0.3) as endpoint:
        run = Run(tmp_path, list(range(10, 30)), endpoint.base_url, server_retries=2)()
        assert len(run.rows) == 19
        assert run.pending == 1


def test_calls_in_flight_are_not_given_up_when_the_run_stops(tmp_path: Path) -> None:
    def script(key: str, number: int, attempt: int) -> str:
        return "quota" if number == 3 else "slow"

    with FakeEndpoint(script=script, slow=1.5) as endpoint:
        with pytest.raises(EndpointError, match="out of credit"):
            Run(tmp_path, list(range(10, 40)), endpoint.base_url, concurrency=8)()
        with JournalReader(tmp_path / "journal.sqlite") as journal:
            assert len(list(journal.calls())) == endpoint.answered.total() == 7


def test_what_earlier_runs_paid_counts_at_todays_price(tmp_path: Path) -> None:
    with FakeEndpoint() as endpoint:
        Run(tmp_path, [1, 2, 3], endpoint.base_url)()
        again = Run(tmp_path, [], endpoint.base_url, price="1000,1000", max_cost=100.0)()
        assert again.stats.calls == 0
        assert again.stats.spent_before > 0
        assert again.stats.unknown_before == 0


@pytest.mark.parametrize(
    "base_url",
    ["localhost:8000", "http://h:abc/v1", "http://[::1/v1", "http://.../v1", "http://h/v1\n", "ftp://h/v1", "http://",
     "http://user:secret@h/v1", "http://h/v1?api_key=secret", "http://u:pa/secret@h"],
)  # fmt: skip
def test_an_address_that_cannot_work_or_holds_a_secret_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match="--base-url") as caught:
        Run(Path(), [1], base_url)()
    assert "secret" not in str(caught.value).replace("a secret", "")


def test_a_key_that_can_be_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("schlüssel-1234", "two words"):
        monkeypatch.setenv("KERNELMILL_API_KEY", key)
        config.environment.cache_clear()
        settings = LLMSettings(base_url="http://127.0.0.1:9/v1", api_key_var="KERNELMILL_API_KEY")
        with pytest.raises(ConfigError, match="does not hold a key"):
            Endpoint(settings).check_key()


@pytest.mark.parametrize("name", ["MY_CREDS", "PRIME_API_KEY"])
def test_an_echoed_key_is_hidden_whatever_its_variable_is_called_and_wherever_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "sk-abcdefghij ")
    config.environment.cache_clear()
    for filler in (0, 290, 296):
        said = json.dumps({"error": {"message": "x" * filler + " sk-abcdefghij"}}).encode()
        answer = (
            b"HTTP/1.1 500 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said)
            + said
        )
        folder = tmp_path / f"{filler}"
        folder.mkdir()
        with raw_server(answer) as base_url:
            run = Run(folder, [1], base_url, api_key_var=name, server_retries=0)()
        assert "sk-abc" not in json.dumps(run.rejected)


def test_a_limit_on_calls_a_second_without_retry_after_is_paced_and_costs_no_row(tmp_path: Path) -> None:
    served: list[float] = []

    def ten_a_second(key: str, number: int, attempt: int) -> str:
        now = time.monotonic()
        if len(served) >= 10 and now - served[-10] < 1.0:
            return "429"
        served.append(now)
        return "ok"

    with FakeEndpoint(script=ten_a_second, latency=0.02) as endpoint:
        run = Run(tmp_path, list(range(100, 150)), endpoint.base_url, concurrency=32)()
        assert run.pending == 0
        assert len(run.rows) == 50
        assert endpoint.behaved["429"] < 10 * endpoint.behaved["ok"]


def test_wrong_settings_stop_the_run_though_they_are_about_numbers_of_tokens(tmp_path: Path) -> None:
    said = json.dumps(
        {"error": {"message": "max_tokens is too large: 200000. This model supports at most 16384 tokens"}}
    ).encode()
    answer = (
        b"HTTP/1.1 400 X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    )
    with raw_server(answer) as base_url, pytest.raises(EndpointError, match="refuses our requests"):
        Run(tmp_path, list(range(100, 150)), base_url, concurrency=2)()


def test_reasons_for_retries_are_counted_in_a_bounded_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_KINDS_OF_RETRY", 3)
    with FakeEndpoint(script=["500", "503", "429", "malformed", "empty", "tags", "refusal"]) as endpoint:
        run = Run(tmp_path, list(range(100, 120)), endpoint.base_url)()
        assert len(run.rows) == 20
        assert len(run.stats.retries) == 4
        assert run.stats.retries.total() == 7


def test_a_call_that_is_told_to_wait_delays_no_other(tmp_path: Path) -> None:
    script = ["ok"] * 20 + ["429-retry-after"]
    with FakeEndpoint(script=script, latency=0.01, retry_after=3) as endpoint:
        run = Run(tmp_path, list(range(100, 400)), endpoint.base_url)()
        assert len(run.rows) == 300
        refused = endpoint.seen[20]
        again = next(call for call in endpoint.seen if call.key == refused.key and call.attempt == 1)
        assert again.number - refused.number > 50, "others go on meanwhile"


def test_calls_that_wait_to_be_made_again_leave_their_places_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSES", (6.0, 6.0))
    # All but one of those in flight fail: the server is not down.
    with FakeEndpoint(script=["ok", *["500"] * 7], latency=0.01) as endpoint:
        run = Run(tmp_path, list(range(100, 200)), endpoint.base_url, concurrency=8)()
        assert len(run.rows) == 100
        again = min(call.number for call in endpoint.seen if call.attempt == 1)
        assert again > 50


def test_a_server_with_a_limit_on_calls_in_flight_is_obeyed(tmp_path: Path) -> None:
    with FakeEndpoint(at_once=6, latency=0.02, retry_after=0.2) as endpoint:
        run = Run(tmp_path, list(range(100, 400)), endpoint.base_url, concurrency=32)()
        assert len(run.rows) == 300
        later = [call.behaviour for call in endpoint.seen[64:]]
        assert later.count("limited") < 0.15 * len(later)


def test_a_server_that_says_that_nothing_is_left_is_left_alone_until_it_said(tmp_path: Path) -> None:
    left = b"HTTP/1.1 429 X\r\nRetry-After: 3600\r\nX-RateLimit-Remaining-Requests: 0\r\nContent-Length: 0\r\n\r\n"
    with raw_server(left) as base_url:
        run = Run(tmp_path, list(range(100, 160)), base_url, concurrency=4)
        interrupt_when(lambda: run.stats.waiting != "")
        with pytest.raises(Interrupted):
            run()
        assert run.stats.retries.total() <= 4, "nobody asks while the server has nothing left"


def test_a_model_that_cannot_do_the_job_is_noticed_and_what_it_said_is_shown(tmp_path: Path) -> None:
    said = iter(range(10_000))
    reply = lambda _: f"I would rather talk about\nthe weather, for the {next(said)}th time"  # noqa: E731
    with FakeEndpoint(reply=reply) as endpoint:
        run = Run(tmp_path, list(range(100, 400)), endpoint.base_url, max_unusable=10)
        with pytest.raises(Stopped, match=r"10 answers in a row could not be used: no tag \(10\)") as caught:
            run()
        assert str(caught.value).count("rather talk about the weather") == 3
        assert "\n" not in str(caught.value)
        assert endpoint.asked.total() <= 10 + 16, "what was in flight is the last"
        assert run.stats.unusable == run.stats.calls == endpoint.asked.total()


def test_unusable_answers_now_and_then_do_not_stop_the_run_and_zero_never_does(tmp_path: Path) -> None:
    with FakeEndpoint(script=lambda key, number, attempt: "tags" if number % 4 else "ok") as endpoint:
        run = Run(tmp_path, list(range(100, 150)), endpoint.base_url, max_unusable=10, concurrency=2)()
        assert len(run.rows) + len(run.rejected) == 50
    (tmp_path / "never").mkdir()
    with FakeEndpoint(script=lambda *_: "empty") as endpoint:
        run = Run(tmp_path / "never", list(range(100, 120)), endpoint.base_url, max_unusable=0)()
        assert len(run.rejected) == 20
        assert endpoint.asked.total() == 60


@pytest.mark.heavy
def test_requests_are_questions_and_retries_and_answers_are_what_is_paid(tmp_path: Path) -> None:
    rates = {"429": 0.1, "500": 0.1, "drop": 0.1, "malformed": 0.1, "tags": 0.2}
    with FakeEndpoint(script=rates) as endpoint:
        run = Run(tmp_path, list(range(100, 200)), endpoint.base_url, server_retries=1)()
        stats, seen = run.stats, endpoint.behaved
        assert run.rejected, "some questions end without a usable answer, some without any"
        assert stats.requests == endpoint.asked.total() == 100 + stats.retries.total()
        assert stats.calls == seen["ok"] + seen["tags"]
        assert stats.unusable == seen["tags"]
