"""What every request goes through, without a socket; and what the command refuses before it listens."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from kernelmill.errors import ConfigError
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.serve import gate
from kernelmill.serve.app import make_app
from kernelmill.serve.gate import Gate
from kernelmill.serve.metrics import Metrics
from kernelmill.serve.service import Judge, Service, trouble
from kernelmill.settings.commands import run_tool


class Inner:
    """An application that keeps what it gets and answers when it is let go."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.bodies.append((await receive())["body"])
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def ask(app: Gate, *messages: Message, path: str = "/evaluate", **headers: str) -> tuple[int, Any]:
    """The status and what was said; (0, None) where there was no answer."""
    waiting, sent = list(messages), []

    async def receive() -> Message:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": named}
    await app(scope, receive, send)
    if not sent:
        return 0, None
    lines = b"".join(message["body"] for message in sent[1:]).splitlines() or [b"null"]
    return sent[0]["status"], json.loads(lines[0]) if len(lines) == 1 else [
        json.loads(line) for line in lines
    ]


def part(body: bytes, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


LEFT: Message = {"type": "http.disconnect"}


def test_a_body_in_parts_arrives_whole_and_one_that_is_too_large_not_at_all() -> None:
    async def run() -> None:
        inner, metrics = Inner(), Metrics()
        inner.go.set()
        app = Gate(inner, metrics, token=None, max_bytes=6, max_open=9)
        assert await ask(app, part(b"abc", True), part(b"def")) == (200, None)
        status, said = await ask(app, part(b"abc", True), part(b"defg", True), part(b"h"))
        assert (status, said) == (413, {"error": "the body is larger than 6 bytes"})
        assert (await ask(app, part(b"abcdefg"), **{"Content-Length": "7"}))[0] == 413
        assert inner.bodies == [b"abcdef"]
        assert metrics.requests == {("/evaluate", "200"): 1, ("/evaluate", "413"): 2}
        assert metrics.rejected == {"too_large": 2}

    asyncio.run(run())


def test_a_client_that_leaves_while_it_sends_or_sends_too_slowly_reaches_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "_LINGER_SECONDS", 0.02)

    async def run() -> None:
        inner, metrics = Inner(), Metrics()
        app = Gate(inner, metrics, token=None, max_bytes=99, max_open=9)
        assert await ask(app, part(b"abc", True), LEFT) == (0, None)
        monkeypatch.setattr(gate, "ARRIVAL_SECONDS", 0.02)
        status, said = await ask(app, part(b"abc", True))
        assert (status, said) == (408, {"error": "the body did not come in 0.02 s"})
        assert inner.bodies == []
        assert metrics.requests == {("/evaluate", "499"): 1, ("/evaluate", "408"): 1}

    asyncio.run(run())


def test_no_more_requests_are_held_open_than_allowed() -> None:
    async def run() -> None:
        inner = Inner()
        app = Gate(inner, Metrics(), token=None, max_bytes=99, max_open=2)
        first = [asyncio.create_task(ask(app, part(b"a"))) for _ in range(2)]
        await asyncio.sleep(0)
        assert await ask(app, part(b"b")) == (429, {"error": "too many requests are open"})
        inner.go.set()
        assert [status for status, _ in await asyncio.gather(*first)] == [200, 200]
        assert (await ask(app, part(b"b")))[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("given", ["Bearer secret", "bearer secret", "BEARER  secret "])
def test_the_token_is_taken_as_the_standard_has_it(given: str) -> None:
    async def run() -> None:
        inner = Inner()
        inner.go.set()
        app = Gate(inner, Metrics(), token="secret", max_bytes=99, max_open=9)
        assert (await ask(app, part(b""), Authorization=given))[0] == 200
        for wrong in ("Basic secret", "secret", "Bearer", "Bearer secret secret", ""):
            assert (await ask(app, part(b""), Authorization=wrong))[0] == 401
        assert (await ask(app, part(b""), path="/health"))[0] == 200

    asyncio.run(run())


def test_trouble_of_our_own_is_no_verdict_for_a_trainer_who_would_take_it_for_wrong() -> None:
    async def judge(pair: Pair, options: Options) -> Verdict:
        return trouble(pair.id, "the server was killed")

    async def run() -> None:
        body = {"original_model_src": "a", "custom_model_src": "b"}
        status, said = await ask(served(judge), part(json.dumps(body).encode()), path="/eval", **JSON)
        assert status == 503
        assert said["error"] == "the service has trouble of its own: the server was killed"
        assert (said["reward"], said["verdict"]["status"]) == (None, "INFRA_ERROR")
        pair = {"reference": "a", "candidate": "b"}
        status, said = await ask(served(judge), part(json.dumps(pair).encode()), **JSON)
        assert (status, said["status"], said["verdict"], said["reward"]) == (
            200,
            "INFRA_ERROR",
            "inconclusive",
            None,
        )

    asyncio.run(run())


def test_a_stream_that_has_begun_tells_each_pair_that_the_service_stopped() -> None:
    async def judge(pair: Pair, options: Options) -> Verdict:
        if pair.candidate == "slow":
            await asyncio.Event().wait()
        judged.set()
        return Verdict(pair.id, "PASSED", "interpreter")

    judged = asyncio.Event()

    async def run() -> None:
        app = served(judge)
        pairs = [{"reference": "a", "candidate": code, "id": code} for code in ("slow", "quick")]
        body = part(json.dumps({"pairs": pairs}).encode())
        accept = {**JSON, "Accept": "application/x-ndjson"}
        asking = asyncio.create_task(ask(app, body, path="/evaluate/batch", **accept))
        await judged.wait()
        await asyncio.sleep(0.05)
        await services[-1].stop(0.01)
        status, rows = await asking
        assert status == 200
        assert [(row["index"], row["id"], row["status"]) for row in rows] == [
            (1, "quick", "PASSED"),
            (0, "slow", "INFRA_ERROR"),
        ]

    asyncio.run(run())


JSON = {"Content-Type": "application/json"}
services: list[Service] = []


def served(judge: Judge) -> Gate:
    """The whole application with this judge behind it."""
    service = Service(judge, Options(), workers=2)
    service.state = "ready"
    services.append(service)
    return Gate(make_app(service, "default"), service.metrics, token=None, max_bytes=9999, max_open=9)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "other machines: set a token"),
        (["--host", "::"], "other machines: set a token"),
        (["--host", "no such host"], "--host no such host"),
        (["--port", "99999"], "99999"),
        (["--token-env", "NOT_SET"], "NOT_SET is not set"),
        (["--reward", "riches"], "unknown reward riches"),
        (["--workers", "0"], "from 1 on"),
        (["--device", "tpu"], "invalid choice"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(flags: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        run_tool("serve", flags)
    assert "\n" not in str(error.value)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            run_tool("serve", ["--port", str(port)])


@pytest.mark.parametrize("name", ["fastapi", "prometheus_client"])
def test_without_the_extra_the_command_says_what_to_install(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None; from kernelmill.cli import main; sys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert done.stderr == f"kernelmill: serve needs {name}: pip install 'kernelmill[serve,eval]'\n"
