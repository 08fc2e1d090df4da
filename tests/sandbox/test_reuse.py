"""Children that serve several requests: what they keep, what is new each time, and when they are let go."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from kernelmill.sandbox import Sandbox

pytestmark = pytest.mark.own_servers
WORKER = """
import os, time

kept = {"spent": False, "served": 0}

def handle(request, sockets):
    sockets[0].sendall(request.get("say", "").encode().ljust(64))
    heard = sockets[0].recv(64).decode()
    kept["served"] += 1
    kept["spent"] = bool(request.get("spent"))
    if request.get("print"):
        print(request["print"], flush=True)
    if "sleep" in request:
        time.sleep(request["sleep"])
    if "exit" in request:
        os._exit(request["exit"])
    if "fail" in request:
        raise ValueError(request["fail"])
    return {"pid": os.getpid(), "served": kept["served"], "heard": heard}

def reusable():
    return not kept["spent"]

def companion(end):
    said = end.recv(64).decode().strip()
    print("companion of", said, flush=True)
    end.sendall(f"{os.getpid()} {said}".encode())
    if said == "stay":
        time.sleep(60)
"""
TIMEOUT = 2.0


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    (tmp_path / "reused_worker.py").write_text(WORKER)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with Sandbox("reused_worker", workers=1, timeout=TIMEOUT, memory_mb=512, companions=1, reuse=4) as warm:
        yield warm


def below(sandbox: Sandbox) -> int:
    """How many processes the server has."""
    assert sandbox._connection is not None
    return len(psutil.Process(sandbox._connection._process.pid).children(recursive=True))


def test_a_child_serves_as_many_requests_as_it_may_each_with_a_new_companion(sandbox: Sandbox) -> None:
    results = [sandbox.run_sync({"say": f"{n}"})["result"] for n in range(6)]
    assert [result["served"] for result in results] == [1, 2, 3, 4, 1, 2]
    assert len({result["pid"] for result in results}) == 2
    companions = [result["heard"].split() for result in results]
    assert len({pid for pid, _ in companions}) == 6
    assert [said for _, said in companions] == [f"{n}" for n in range(6)]


def test_a_companion_ends_with_its_request_and_its_child_waits(sandbox: Sandbox) -> None:
    assert sandbox.run_sync({"say": "stay"})["companions"] == ["SIGKILL"]
    assert below(sandbox) == 1


def test_what_is_printed_belongs_to_its_request(sandbox: Sandbox) -> None:
    first, second = (sandbox.run_sync({"say": word, "print": f"printed {word}"}) for word in ("a", "b"))
    assert first["output"].split("\n")[:2] == ["companion of a", "printed a"]
    assert second["output"].split("\n")[:2] == ["companion of b", "printed b"]


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ({"spent": True}, "ok"),
        ({"fail": "no"}, "error"),
        ({"exit": 3}, "crashed"),
        ({"sleep": 60}, "timeout"),
    ],
)
def test_a_child_that_failed_or_says_that_it_is_spent_serves_no_more(
    sandbox: Sandbox, request_: dict[str, object], kind: str
) -> None:
    before = sandbox.run_sync({})["result"]
    reply = sandbox.run_sync(request_)
    assert reply["kind"] == kind
    after = sandbox.run_sync({})["result"]
    assert after["pid"] != before["pid"]
    assert after["served"] == 1
    assert below(sandbox) == 1


def test_a_child_that_dies_while_it_waits_costs_no_request(sandbox: Sandbox) -> None:
    pid = sandbox.run_sync({})["result"]["pid"]
    process = psutil.Process(pid)
    process.kill()
    process.wait(240)
    assert sandbox.run_sync({})["kind"] == "ok"


def test_closing_ends_children_that_wait(sandbox: Sandbox) -> None:
    pid = sandbox.run_sync({})["result"]["pid"]
    sandbox.close()
    assert not psutil.pid_exists(pid)
