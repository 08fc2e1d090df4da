"""One HTTP/1.1 request over asyncio with the standard library, for the reward client.

A trainer's environment is full of pinned packages, and a reward client must not force other versions. Each
request opens its own connection. This costs little compared to a verdict, and avoids a connection that the
service is about to close. Not included: redirects, proxies, cookies, compression. The caller sets the overall
timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import io
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

CONNECT_TIMEOUT = 10.0
_MOST_BYTES = 1 << 26
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?\r?\n")


class Answer(NamedTuple):
    status: int
    retry_after: str | None
    body: bytes


class CannotConnect(Exception):
    """Nothing listens there, or not yet: nothing was sent."""


class Broken(Exception):
    """The connection closed before the response was complete, or the response is not HTTP."""


def address(url: str) -> SplitResult:
    """Parse an address. Raises `ValueError` if it cannot be requested, or contains a password."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("expected http://host:port")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("no password, query or fragment in it")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("it has letters that no address has")
    return parts


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    """Send the request and return the whole response."""
    parts = address(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    secure = _tls() if parts.scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure)
    except TimeoutError:
        raise CannotConnect(f"no connection in {CONNECT_TIMEOUT:g} s") from None
    except OSError as error:
        raise CannotConnect(str(error) or type(error).__name__) from error
    try:
        sent = {"Host": parts.netloc, "Connection": "close", "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"POST {parts.path or '/'} HTTP/1.1\r\n{lines}\r\n".encode("ascii") + body)
        # Not drained: a service that rejects a large body responds before it has read all of it.
        return await _answer(reader)
    except (OSError, EOFError, asyncio.LimitOverrunError, http.client.HTTPException, ValueError) as error:
        raise Broken(str(error) or type(error).__name__) from error
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@functools.lru_cache(1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _answer(reader: asyncio.StreamReader) -> Answer:
    status = 100
    while status < 200:  # interim responses, such as 100 Continue
        first = await reader.readline()
        found = _STATUS.fullmatch(first)
        if found is None:
            raise EOFError("no answer came" if not first else f"not HTTP: {first[:60]!r}")
        status = int(found[1])
        lines: list[bytes] = []
        while not lines or lines[-1] not in (b"\r\n", b"\n", b""):
            lines.append(await reader.readline())
            if len(lines) > 100:
                raise EOFError("more than 100 headers")
        headers = http.client.parse_headers(io.BytesIO(b"".join(lines)))
    return Answer(status, headers.get("Retry-After"), await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: http.client.HTTPMessage) -> bytes:
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        return await _chunks(reader)
    length = headers.get("Content-Length")
    if length is None:
        body = bytearray()
        while more := await reader.read(1 << 16):
            body += more
            _bounded(len(body))
        return bytes(body)
    return await reader.readexactly(_bounded(int(length)))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        _bounded(len(body) + size)
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return bytes(body)


def _bounded(size: int) -> int:
    if not 0 <= size <= _MOST_BYTES:
        raise ValueError(f"an answer of {size:,} bytes")
    return size
