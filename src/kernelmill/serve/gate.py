"""The gate for every request.

It checks the token, the body's size and arrival time, and the number of open requests. The headers' arrival
time is checked in `arrival`, before there is a request.

The body is read here, whole and within its limit, before anything else sees it. Afterwards the request is
counted and logged: method, endpoint, status, seconds. Bodies, queries, headers and unknown paths are never
logged.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernelmill.serve.metrics import Metrics

log = logging.getLogger("kernelmill.serve")
OPEN = ("/", "/docs", "/health")
"""Endpoints without a token: they describe the service and whether it is up."""
ENDPOINTS = (*OPEN, "/eval", "/evaluate", "/evaluate/batch", "/metrics", "/openapi.json")
ARRIVAL_SECONDS = 30.0
"""How long a request's headers may take to arrive, and its body."""
_LINGER_SECONDS = 2.0
GONE = 499
"""The client disconnected before the response. Only the log and the counters see this status."""


class _Refused(Exception):
    def __init__(
        self, status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers or {}


class Gate:
    """ASGI middleware.

    `OPEN` needs no token; `/health` reports more with one (`scope["state"]["trusted"]`).
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, token: str | None, max_bytes: int, max_open: int
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.token = None if token is None else token.encode()
        self.max_bytes = max_bytes
        self.max_open = max_open
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), GONE
        endpoint = scope["path"] if scope["path"] in ENDPOINTS else "other"

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.open += 1
        try:
            await self._pass(scope, receive, watched)
        finally:
            self.open -= 1
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            record(self.metrics, method, endpoint, status, start)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            trusted = self._trusted(scope)
            if not trusted and scope["path"] not in OPEN:
                raise _Refused(
                    401, "unauthorized", "a bearer token is needed", {"WWW-Authenticate": "Bearer"}
                )
            if scope["method"] == "POST" and self.open > self.max_open:
                raise _Refused(429, "too_many_open", "too many requests are open", {"Retry-After": "1"})
            body = await self._body(scope, receive)
        except _Refused as refused:
            self.metrics.rejected[refused.reason] += 1
            if refused.status != GONE:
                await _linger(receive)
                await _answer(send, refused)
            return
        scope.setdefault("state", {})["trusted"] = trusted
        unread = True

        async def replay() -> Message:
            nonlocal unread
            if unread:
                unread = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, replay, send)

    def _trusted(self, scope: Scope) -> bool:
        if self.token is None:
            return True
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        kind, _, said = (given[0] if len(given) == 1 else b"").partition(b" ")
        return hmac.compare_digest(said.strip(), self.token) and kind.lower() == b"bearer"

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        too_large = _Refused(413, "too_large", f"the body is larger than {self.max_bytes} bytes")
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self.max_bytes:
                raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(ARRIVAL_SECONDS):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Refused(GONE, "left", "the client left")
                    body += message.get("body", b"")
                    if len(body) > self.max_bytes:
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise _Refused(408, "too_slow", f"the body did not come in {ARRIVAL_SECONDS:g} s") from None


def record(metrics: Metrics, method: str, endpoint: str, status: int, start: float) -> None:
    """Count and log a request. `start` is the time by `time.monotonic`."""
    metrics.requests[endpoint, str(status)] += 1
    log.info("%s %s %d %.3f s", method, endpoint, status, time.monotonic() - start)


async def _linger(receive: Receive) -> None:
    """Read what a rejected client still sends.

    If it is cut off while sending, it never reads the response.
    """
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


async def _answer(send: Send, refused: _Refused) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refused.headers}
    start: dict[str, Any] = {
        "type": "http.response.start",
        "status": refused.status,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
