"""Clients that open a connection and then send slowly, half or nothing, and the honest ones beside them."""

from __future__ import annotations

import http.client
import json
import re
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.evaluate.corpus import case
from tests.serve.served import TOKEN, Served, pair, until
from tests.serve.test_serve import HANGING

LIMIT = 1.0
"""Of the impatient service. The other one has the limit that users get."""
KEEP_ALIVE_SECONDS = 5
"""uvicorn's default."""
WITH_LIMIT = f"""\
import sys
from kernelmill.serve import gate
gate.ARRIVAL_SECONDS = {LIMIT}
from kernelmill.cli import main
sys.exit(main(sys.argv[1:]))
"""
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"POST /evaluate HTTP/1.1\r\nHost: x\r\nContent-Le"
UNTRUSTED = b"POST /evaluate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"


def impatient_command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", WITH_LIMIT, *map(str, arguments)]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("impatient")
    with Served(folder, "--workers", 1, "--timeout", 3, start=impatient_command) as made:
        yield made.wait_until_ready()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("patient"), "--workers", 1) as made:
        yield made


class Said(NamedTuple):
    status: int
    body: bytes
    headers: http.client.HTTPMessage


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=240)


def answer(asking: socket.socket) -> Said:
    """The next response on a connection. What follows it has to come later."""
    got = http.client.HTTPResponse(asking)
    got.begin()
    return Said(got.status, got.read(), got.headers)


def rest(asking: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := asking.recv(4096):
            parts.append(part)
    except ConnectionResetError:
        pass  # it closed while we were sending
    return b"".join(parts)


def drip(asking: socket.socket, byte: bytes) -> int:
    """Send one byte after another until the other side says or ends something. Gives their number."""
    sent = 0
    while not select.select([asking], [], [], 0.02)[0]:
        try:
            asking.sendall(byte)
        except ConnectionError:
            break
        sent += 1
    return sent


def is_open(asking: socket.socket) -> bool:
    return not select.select([asking], [], [], 0)[0]


def too_late(served: Served) -> Counter[str]:
    """What the service has counted and logged of headers that did not come."""
    found = served.metrics()
    return Counter(
        rejected=int(found.get('kernelmill_rejected_total{reason="too_slow"}', 0)),
        requests=int(found.get('kernelmill_requests_total{endpoint="other",status="408"}', 0)),
        log=served.log.read_text("utf-8").count("INFO other other 408 "),
    )


def counted(served: Served, before: Counter[str], times: int) -> bool:
    return too_late(served) - before == Counter(rejected=times, requests=times, log=times)


@pytest.mark.parametrize("send", [lambda asking: asking.sendall(HALF), lambda asking: drip(asking, b"x")])
def test_headers_that_do_not_end_in_time_are_answered_with_408_and_the_connection_is_closed(
    impatient: Served, send: Callable[[socket.socket], object]
) -> None:
    before = too_late(impatient)
    with connect(impatient) as asking:
        send(asking)
        said = answer(asking)
        assert (said.status, json.loads(said.body)) == (408, {"error": "the headers did not come in 1 s"})
        assert (said.headers["content-type"], said.headers["connection"]) == ("application/json", "close")
        assert rest(asking) == b""
    assert counted(impatient, before, 1)


def test_a_connection_on_which_nothing_comes_is_closed_without_an_answer(impatient: Served) -> None:
    before = too_late(impatient)
    with connect(impatient) as silent:
        assert rest(silent) == b""
    assert counted(impatient, before, 1)


def test_a_client_that_leaves_before_the_limit_is_not_counted(impatient: Served) -> None:
    before = too_late(impatient)
    with connect(impatient) as leaving:
        leaving.sendall(HALF)
    with connect(impatient) as silent:  # connected later, so its limit comes later
        assert rest(silent) == b""
    assert counted(impatient, before, 1)


@pytest.mark.parametrize("byte_by_byte", [False, True])
def test_a_later_request_of_a_connection_has_the_limit_too_from_its_first_byte_on(
    impatient: Served, byte_by_byte: bool
) -> None:
    with connect(impatient) as asking:
        asking.sendall(HEALTH)
        assert answer(asking).status == 200
        time.sleep(1.5 * LIMIT)
        asking.sendall(HEALTH)
        assert answer(asking).status == 200, "the time between two requests is not limited by this"
        before = too_late(impatient)
        if byte_by_byte:
            drip(asking, b"x")
        else:
            asking.sendall(HALF)
        assert answer(asking).status == 408
        assert rest(asking) == b""
    assert counted(impatient, before, 1)


def test_half_a_request_sent_together_with_a_whole_one_has_the_limit_too(impatient: Served) -> None:
    before = too_late(impatient)
    with connect(impatient) as asking:
        asking.sendall(HEALTH + HALF)
        said = rest(asking)
    assert re.findall(rb"HTTP/1\.1 (\d+)", said) == [b"200", b"408"]
    assert counted(impatient, before, 1)


def test_a_request_whose_headers_came_in_time_may_be_judged_for_longer_than_the_limit(
    impatient: Served,
) -> None:
    verdict = impatient.post("/evaluate", pair(case("X_ok_swish"), candidate=HANGING)).json
    assert verdict["status"] == "TIMEOUT"
    assert verdict["cost"]["wall_s"] > LIMIT


def test_a_refused_client_that_goes_on_sending_its_body_slowly_is_closed(impatient: Served) -> None:
    before = too_late(impatient)
    with connect(impatient) as asking:
        asking.sendall(UNTRUSTED)
        assert answer(asking).status == 401
        assert drip(asking, b"x")
        assert rest(asking) == b"", "it had its answer"
    assert counted(impatient, before, 0)


def test_two_hundred_silent_connections_are_all_closed_and_nobody_else_is(impatient: Served) -> None:
    before = too_late(impatient)
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(impatient)) for _ in range(200)]
        assert [rest(one) for one in silent] == [b""] * 200
    assert counted(impatient, before, 200)
    assert impatient.get("/health").status == 200


def test_two_hundred_silent_connections_do_not_keep_an_honest_client_waiting(patient: Served) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(patient)) for _ in range(200)]
        for path in ("/health", "/metrics"):
            assert patient.get(path).status in (200, 503)
        assert all(map(is_open, silent)), "it was answered before the first of them was closed"


def test_a_slow_client_that_is_in_time_is_served_also_twice_on_one_connection(patient: Served) -> None:
    with connect(patient) as asking:
        for _ in range(2):
            for byte in HEALTH:
                asking.sendall(bytes([byte]))
                time.sleep(0.005)
            assert answer(asking).status in (200, 503)


def test_requests_sent_in_one_piece_are_answered_one_after_another(patient: Served) -> None:
    with connect(patient) as asking:
        asking.sendall(HEALTH * 3 + HEALTH[:9])
        asking.sendall(HEALTH[9:-2] + b"Connection: close\r\n\r\n")
        said = rest(asking)
    assert said.count(b"HTTP/1.1 ") == said.count(b'{"status":') == 4


def test_the_limit_between_two_requests_does_not_end_one_that_has_begun(patient: Served) -> None:
    with connect(patient) as asking:
        asking.sendall(HEALTH + HEALTH[:9])
        answer(asking)
        time.sleep(KEEP_ALIVE_SECONDS + 0.5)
        asking.sendall(HEALTH[9:])
        assert answer(asking).status in (200, 503)


def test_a_large_body_in_pieces_arrives_whole(patient: Served) -> None:
    until(lambda: patient.get("/health").status == 200, "the service to be ready")
    body = json.dumps({"reference": "x" * 200_000, "candidate": "y = ("}).encode()
    head = f"POST /evaluate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    with connect(patient) as asking:
        asking.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        for start in range(0, len(body), 20_000):
            asking.sendall(body[start : start + 20_000])
            time.sleep(0.005)
        said = answer(asking)
    assert (said.status, json.loads(said.body)["status"]) == (200, "PARSE_ERROR")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_is_told_to_stop_does_not_wait_for_requests_that_have_not_come(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Served(tmp_path) as starting, connect(starting) as silent, connect(starting) as half:
        half.sendall(HALF)
        assert starting.get("/health").status == 503
        assert starting.stop(number) == 0
        assert (rest(silent), rest(half)) == (b"", b"")
