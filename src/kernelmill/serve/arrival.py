"""The connection of a client: closed if what the client has begun to send does not come in time.

`gate` limits a body's arrival, but is called only when the headers are there. uvicorn waits for headers for
ever: its keep-alive timeout ends at the first byte after a response. So this limits, each to
`gate.ARRIVAL_SECONDS`:

- the headers of a connection's first request, from the moment it is accepted;
- the headers of a later request, from their first byte;
- the rest of a body after its request was refused. Nobody reads it, and only its end frees the connection.

Not limited: how slowly a client reads a response.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kernelmill.serve import gate
from kernelmill.serve.metrics import Metrics


def protocol(metrics: Metrics) -> type[H11Protocol]:
    """The protocol with these counters, as a class: uvicorn makes its instances."""
    return type("TimedProtocol", (_TimedProtocol,), {"metrics": metrics})


class _TimedProtocol(H11Protocol):
    metrics: Metrics
    _due: Literal["headers", "rest of a body"] | None = None
    """What the client has to send before the limit."""
    _since = 0.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._wait_for("headers")

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Called for what came, and for what a pipelining client sent before the last response."""
        super().handle_events()
        due = self._now_due()
        if due == "headers":  # sent before the last response, whose end set the timeout for silence
            self._unset_keepalive_if_required()
        if due != self._due:
            self._wait_for(due)

    def _now_due(self) -> Literal["headers", "rest of a body"] | None:
        if self.conn.their_state is h11.IDLE:
            return "headers" if self._has_begun() else None
        discarded = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        return "rest of a body" if discarded else None

    def _has_begun(self) -> bool:
        """Whether a part of the headers is here."""
        return bool(self.conn.trailing_data[0])

    def _wait_for(self, due: Literal["headers", "rest of a body"] | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._due, self._since, self._limit = due, time.monotonic(), None
        if due is not None:
            self._limit = self.loop.call_later(gate.ARRIVAL_SECONDS, self._on_limit)

    def _on_limit(self) -> None:
        if self.transport.is_closing():
            return
        if self._due == "headers":  # a refused request was counted when it was answered
            self.metrics.rejected["too_slow"] += 1
            gate.record(self.metrics, "other", "other", 408, self._since)
            if self._has_begun():
                self._answer()
        self.transport.close()

    def _answer(self) -> None:
        body = json.dumps({"error": f"the headers did not come in {gate.ARRIVAL_SECONDS:g} s"}).encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        start = h11.Response(status_code=408, headers=headers, reason=b"Request Timeout")
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
