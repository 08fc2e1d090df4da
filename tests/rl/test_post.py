"""One request over HTTP: answers in every framing, and what is no answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from kernelmill.errors import ConfigError
from kernelmill.rl.client import ClientOptions
from kernelmill.rl.post import Answer, Broken, CannotConnect, post


@contextlib.asynccontextmanager
async def server(answer: bytes, asked: list[bytes]) -> AsyncIterator[str]:
    """Reads one request, sends these bytes and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        asked.append(await reader.readexactly(4))
        writer.write(answer)
        await writer.drain()
        writer.close()

    made = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with made:
        yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}/prefix/evaluate"


def ask(answer: bytes) -> tuple[Answer, list[bytes]]:
    async def once() -> tuple[Answer, list[bytes]]:
        asked: list[bytes] = []
        async with server(answer, asked) as url:
            return await post(url, b"body", {"Authorization": "Bearer x"}), asked

    return asyncio.run(once())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello and what does not belong to it",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.0 200\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    ],
)
def test_a_body_is_read_whole_however_it_is_framed(answer: bytes) -> None:
    found, asked = ask(answer)
    assert found == Answer(200, None, b"hello")
    assert asked[0].startswith(b"POST /prefix/evaluate HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer x\r\n" in asked[0]
    assert asked[1] == b"body"


def test_a_refusal_is_an_answer_with_its_status_and_how_long_to_wait() -> None:
    found, _ = ask(b"HTTP/1.1 429 Busy\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n")
    assert found == Answer(429, "7", b"")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 50_000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,
    ],
)
def test_what_is_no_answer_is_a_broken_connection_and_nothing_else(answer: bytes) -> None:
    with pytest.raises(Broken):
        ask(answer)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://nobody.invalid/"])
def test_where_nobody_listens_nothing_was_sent(url: str) -> None:
    with pytest.raises(CannotConnect):
        asyncio.run(post(url, b"", {}))


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:18188",
        "http://",
        "http://me:secret@host",
        "http://host:99999",
        "http://host/a b",
        "ftp://host",
    ],
)
def test_an_address_that_cannot_be_asked_or_holds_a_password_is_refused_before_anything_is_sent(
    url: str,
) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientOptions(url)
    assert "secret" not in str(refused.value)
