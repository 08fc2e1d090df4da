"""The service as a process, asked over a socket."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from kernelmill.evaluate.verdict import Verdict
from tests.evaluate.corpus import case
from tests.serve.served import TOKEN, Served, pair, total, until

QUEUE = 60
RIGHT, WRONG, HACK = case("X_ok_swish"), case("X_mask_inverted"), case("A1_never_launched")
HANGING = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


class SwishNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        copy_kernel[(1,)](x, y, 16, BLOCK=16)
        while y is not None:
            x = y
        return x
"""
HALF_A_REQUEST = f"POST /evaluate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 99\r\n\r\n[".encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(
        tmp_path_factory.mktemp("serve"),
        "--workers",
        2,
        "--queue",
        QUEUE,
        "--timeout",
        5,
        "--max-bytes",
        1 << 20,
    ) as made:
        yield made.wait_until_ready()


def hanging(mark: str) -> dict[str, object]:
    return pair(RIGHT, candidate=f"{HANGING}\n# {mark}\n")


def is_idle(served: Served) -> bool:
    now = served.metrics()
    return now["kernelmill_in_flight"] == now["kernelmill_queue_depth"] == 0


def test_a_syntax_error_is_answered_while_all_workers_are_busy(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool:
        busy = [pool.submit(served.post, "/evaluate", hanging(f"busy {n}")) for n in range(2)]
        until(lambda: served.metrics()["kernelmill_in_flight"] == 2, "both workers to be busy")
        for code, status in (
            ("def broken(:", "PARSE_ERROR"),
            ("x = 1", "FORMAT_ERROR"),
            (HACK.code, "HACK"),
        ):
            answer = served.post("/evaluate", pair(HACK, candidate=f"{code}\n# read"))
            assert answer.json["status"] == status, answer.text
            assert not any(one.done() for one in busy)
        assert [one.result().json["verdict"] for one in busy] == ["incorrect"] * 2


def test_a_browser_is_told_what_the_service_is_and_how_to_ask(served: Served) -> None:
    front, docs = served.get("/", token=None), served.get("/docs", token=None)
    for page in (front, docs):
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        assert not re.search(r"https?://(?!HOST:PORT)|<script|<link|<img", page.text)
    endpoints = served.get("/openapi.json").json["paths"]
    assert endpoints
    assert not [path for path in endpoints if path not in front.text]
    schemas = served.get("/openapi.json").json["components"]["schemas"]
    for body in ("EvaluateRequest", "BatchRequest", "KernelBenchRequest"):
        assert not [name for name in schemas[body]["properties"] if name not in docs.text]
    assert served.get("/metrics", token=None).status == 401


def test_a_right_a_wrong_and_a_deceiving_candidate_get_the_verdict_they_deserve(served: Served) -> None:
    for asked, truth, reward in ((RIGHT, "correct", 1.0), (WRONG, "incorrect", 0.0), (HACK, "hack", 0.0)):
        answer = served.post("/evaluate", pair(asked, id=asked.name, reward="correct"))
        assert answer.status == 200, answer.text
        assert (answer.json["id"], answer.json["verdict"], answer.json["reward"]) == (
            asked.name,
            truth,
            reward,
        )
        assert Verdict.from_dict(answer.json).verdict == truth


def test_one_request_may_ask_for_an_audit_without_the_others_getting_one(served: Served) -> None:
    audited, plain = (
        served.post("/evaluate", pair(HACK, "audit", audit=audit)).json for audit in (True, False)
    )
    assert (audited["tier"], plain["tier"]) == ("interpreter", "static")
    assert len(audited["checks"]) > len(plain["checks"]) == 1
    assert audited["verdict"] == plain["verdict"] == "hack"


def test_a_candidate_that_hangs_is_a_timeout_and_its_own_limit_holds(served: Served) -> None:
    bodies = [{**hanging("its own limit"), "timeout": 1}, hanging("the limit of the service")]
    with ThreadPoolExecutor(2) as pool:
        rows = [answer.json for answer in pool.map(lambda body: served.post("/evaluate", body), bodies)]
    assert [(row["status"], row["verdict"]) for row in rows] == [("TIMEOUT", "incorrect")] * 2
    own, all_of_it = (row["cost"]["stages"]["interpreter"] for row in rows)
    assert own < all_of_it / 2
    refused = served.post("/evaluate", {**hanging("its own limit"), "timeout": 6})
    assert (refused.status, "more than this service allows" in refused.json["error"]) == (422, True)


def test_eval_answers_in_the_form_that_trainers_know(served: Served) -> None:
    body = {
        "original_model_src": RIGHT.reference,
        "custom_model_src": RIGHT.code,
        "entry_point": RIGHT.entry_point,
        "seed_num": 42,
        "num_correct_trials": 5,
        "num_perf_trials": 100,
        "verbose": False,
        "measure_performance": True,
        "preferred_device": 0,
        "backend": "triton",
        "something": {"that": "nobody knows"},
    }
    answer = served.post("/eval", body).json
    assert list(answer)[:5] == ["compiled", "correctness", "metadata", "runtime", "runtime_stats"]
    assert (answer["compiled"], answer["correctness"]) == (True, True)
    assert (answer["runtime"], answer["runtime_stats"]) == (-1.0, {})
    assert answer["metadata"]["runtime"] == "not measured: no GPU was used"
    assert {"seed_num", "something"} <= set(answer["metadata"]["not_used"])
    assert answer["reward"] == answer["verdict"]["rewards"]["default"] >= 0.3
    assert Verdict.from_dict(answer["verdict"]).status == "PASSED"
    wrong = served.post("/eval", {**body, "original_model_src": WRONG.reference, "custom_model_src": WRONG.code,
                                  "entry_point": WRONG.entry_point}).json  # fmt: skip
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"]) == (True, False, -1.0)
    assert wrong["metadata"]["correctness_issue"]


def test_a_batch_is_answered_in_order_or_line_by_line_as_verdicts_come(served: Served) -> None:
    pairs = [pair(RIGHT, "batch", id="slow"), pair(HACK, id=7), pair(WRONG), pair(HACK, id="twice")]
    rows = served.post("/evaluate/batch", {"pairs": pairs}).json
    assert [row["verdict"] for row in rows] == ["correct", "hack", "incorrect", "hack"]
    assert [rows[0]["id"], rows[1]["id"], rows[2]["id"][:7], rows[3]["id"]] == [
        "slow",
        "7",
        "sha256:",
        "twice",
    ]
    pairs[0] = pair(RIGHT, "another batch", id="slow")
    answer = served.post("/evaluate/batch", {"pairs": pairs}, Accept="application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert sorted(line["index"] for line in lines) == [0, 1, 2, 3]
    assert lines[-1]["id"] == "slow", "what is known already does not wait for what is not"
    too_many = served.post("/evaluate/batch", {"pairs": [pair(HACK)] * (QUEUE + 1)})
    assert too_many.status == 413


def test_health_says_what_the_service_is_and_little_to_strangers(served: Served) -> None:
    health = served.get("/health").json
    assert (health["status"], health["tier"], health["workers"], health["queue_limit"]) == (
        "ready",
        "interpreter",
        2,
        QUEUE,
    )
    assert health["versions"]["triton"]
    assert isinstance(health["sandbox_missing"], list)
    assert served.get("/health", token=None).json == {"status": "ready"}


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "ä"])
def test_without_the_right_token_nothing_is_judged(served: Served, token: str | None) -> None:
    before = total(served.metrics(), "answers_total")
    for path in ("/eval", "/evaluate", "/evaluate/batch"):
        answer = served.post(path, pair(HACK), token=token)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json == {"error": "a bearer token is needed"}
    assert served.get("/metrics", token=token).status == 401
    assert total(served.metrics(), "answers_total") == before


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{not json", 422, "JSON"),
        (b"[1, 2]", 422, "dictionary"),
        (b"[" * 100_000, 400, "parsing the body"),
        ({"reference": "x"}, 422, "candidate: Field required"),
        ({"reference": "x", "candidate": 5}, 422, "candidate: Input should be a valid string"),
        ({"reference": "x", "candidate": "y", "auditt": True}, 422, "auditt: Extra inputs"),
        ({"reference": "x", "candidate": "y", "reward": "riches"}, 422, "unknown reward riches"),
        ({"reference": "x", "candidate": "y" * 300_000}, 422, "candidate: String should have at most 262144"),
        ({"reference": "x", "candidate": "y" * (2 << 20)}, 413, "larger than 1048576 bytes"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, str | int) else "",
)  # fmt: skip
def test_a_request_that_is_no_pair_is_refused_in_one_line(
    served: Served, body: Any, status: int, said: str
) -> None:
    answer = served.post("/evaluate", body)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert said in answer.json["error"]
    assert "\n" not in answer.json["error"]


def test_a_body_without_its_length_is_held_to_the_limit_too(served: Served) -> None:
    chunk = b"%x\r\n%s\r\n" % (1 << 19, b" " * (1 << 19))
    with socket.create_connection(("127.0.0.1", served.port)) as asking:
        head = f"POST /evaluate HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
        asking.sendall(head.encode() + chunk * 4 + b"0\r\n\r\n")
        assert asking.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_form_from_a_page_of_some_browser_is_no_request(served: Served) -> None:
    answer = served.post("/evaluate", pair(HACK), Content_Type="text/plain")
    assert answer.status == 422
    assert "Content-Type: application/json" in answer.json["error"]


def test_a_full_queue_says_when_to_come_back_and_is_empty_when_the_client_leaves(served: Served) -> None:
    until(lambda: is_idle(served), "an idle service")
    before = served.metrics()
    leaving = served.send("/evaluate/batch", {"pairs": [hanging(str(n)) for n in range(QUEUE)]})
    until(lambda: served.metrics()["kernelmill_in_flight"] == 2, "work")
    until(lambda: len(served.processes()) >= 2 + 2 * 2, "two judges, each with a candidate")
    assert served.metrics()["kernelmill_queue_depth"] == QUEUE - 2
    full = served.post("/evaluate/batch", {"pairs": [hanging(f"more {n}") for n in range(3)]})
    assert full.status == 429
    assert 1 <= int(full.headers["retry-after"]) <= 60
    assert "the queue is full" in full.json["error"]
    leaving.close()
    until(lambda: is_idle(served), "the queue to be empty", 4)
    until(lambda: len(served.processes()) == 2, "the candidates' processes to end", 4)
    after = served.metrics()
    assert total(after, "cancelled_total") - total(before, "cancelled_total") == QUEUE
    assert total(after, "verdicts_total") == total(before, "verdicts_total")
    assert served.post("/evaluate", pair(HACK)).json["verdict"] == "hack"


def test_fifty_at_once_all_get_the_right_answer_and_the_counts_add_up(served: Served) -> None:
    until(lambda: is_idle(served), "an idle service")
    before = served.metrics()
    asked = [(pair(HACK, f"fifty {n}"), "hack") for n in range(20)]
    asked += [(pair(HACK, candidate=f"x = = {n}"), "incorrect") for n in range(20)]
    asked += [(pair(RIGHT, f"fifty {n % 2}"), "correct") for n in range(6)]
    asked += [(pair(WRONG, f"fifty {n % 2}"), "incorrect") for n in range(4)]
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda each: served.post("/evaluate", each[0]), asked))
    assert [answer.status for answer in answers] == [200] * 50
    assert [answer.json["verdict"] for answer in answers] == [truth for _, truth in asked]
    after = served.metrics()

    def more(name: str) -> float:
        return total(after, name) - total(before, name)

    assert more("answers_total") == 50
    assert more("verdicts_total") == more("evaluation_seconds_count") == 44, "the same content is judged once"
    ok = 'kernelmill_requests_total{endpoint="/evaluate",status="200"}'
    assert after[ok] - before[ok] == 50
    buckets = [
        value for key, value in after.items() if key.startswith("kernelmill_evaluation_seconds_bucket")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == after["kernelmill_evaluation_seconds_count"]
    assert after["kernelmill_in_flight"] == after["kernelmill_queue_depth"] == 0


@pytest.mark.heavy
def test_an_evaluator_that_is_killed_is_its_own_trouble_and_the_service_goes_on(served: Served) -> None:
    def judging() -> list[psutil.Process]:
        return served.processes("kernelmill.evaluate.judge.worker")

    body = hanging("killed")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(served.post, "/evaluate", body)
        (first,) = judging()
        until(first.children, "a judge at work")
        first.kill()
        (second,) = until(lambda: [one for one in judging() if one.pid != first.pid], "the second try")
        second.kill()
        answer = asking.result(240)
    assert (answer.status, answer.json["status"], answer.json["reward"]) == (200, "INFRA_ERROR", None)
    assert answer.json["verdict"] == "inconclusive"
    assert served.post("/evaluate", pair(RIGHT, "after the kill")).json["verdict"] == "correct"
    assert served.post("/evaluate", body).json["status"] == "TIMEOUT", "trouble of ours is not remembered"


def test_the_log_has_requests_and_neither_code_nor_token(served: Served) -> None:
    served.post("/evaluate?token=in-a-query", pair(HACK, "a mark that only bodies have"))
    assert served.get("/a%20path%0Athat%20is%20not%20ours").status == 404
    until(lambda: "INFO GET other 404 " in served.log.read_text("utf-8"), "the log")
    log = served.log.read_text("utf-8")
    assert re.search(r"INFO POST /evaluate 200 \d+\.\d{3} s", log)
    for secret in (TOKEN, "a mark that only", "in-a-query", "not ours", "class "):
        assert secret not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_still_starting_says_so_and_can_be_stopped(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Served(tmp_path) as starting:
        health = until(lambda: starting.get("/health"), "an answer")
        assert (health.status, health.json["status"]) == (503, "starting")
        refused = starting.post("/evaluate", pair(HACK))
        assert (refused.status, refused.json["error"]) == (503, "the service is starting")
        assert refused.headers["retry-after"]
        processes = starting.processes()
        status = starting.stop(number)
    assert (status, [process for process in processes if process.is_running()]) == (0, [])


def test_a_service_that_is_told_to_stop_answers_what_is_in_flight_and_leaves_no_process(
    tmp_path: Path,
) -> None:
    with Served(tmp_path, "--timeout", 3600, "--workers", 1) as served, ThreadPoolExecutor(2) as pool:
        served.wait_until_ready()
        asking = [pool.submit(served.post, "/evaluate", hanging(str(n))) for n in range(2)]
        until(lambda: served.metrics()["kernelmill_in_flight"] == 1, "work")
        processes = until(lambda: found if len(found := served.processes()) >= 4 else None, "a judge at work")
        half_sent = socket.create_connection(("127.0.0.1", served.port))
        half_sent.sendall(HALF_A_REQUEST)
        status = served.stop()
        for answer in (one.result() for one in asking):
            assert (answer.status, answer.json["error"]) == (503, "the service is stopping")
        half_sent.close()
    assert status == 0
    assert [process for process in processes if process.is_running()] == []
