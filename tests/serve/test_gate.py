"""What every request goes through, without a socket; and what the command refuses before it listens."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from kernelmill.errors import ConfigError
from kernelmill.serve import gate
from kernelmill.serve.command import main
from kernelmill.serve.gate import Gate
from kernelmill.serve.metrics import Metrics


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
    await app({"type": "http", "method": "POST", "path": path, "headers": named}, receive, send)
    if not sent:
        return 0, None
    return sent[0]["status"], json.loads(sent[1]["body"] or b"null")


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
    monkeypatch.setattr(gate, "ARRIVAL_SECONDS", 0.02)
    monkeypatch.setattr(gate, "_LINGER_SECONDS", 0.02)

    async def run() -> None:
        inner, metrics = Inner(), Metrics()
        app = Gate(inner, metrics, token=None, max_bytes=99, max_open=9)
        assert await ask(app, part(b"abc", True), LEFT) == (0, None)
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
        main(flags)
    assert "\n" not in str(error.value)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            main(["--port", str(port)])
