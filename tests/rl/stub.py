"""A stand-in for `kernelmill serve` that answers, refuses and breaks off as it is told."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Answer = tuple[int, object] | tuple[int, object, dict[str, str]] | str
"""Status, body and headers; or `reset` (the connection breaks), `hang` (no answer comes)."""


def verdict(reward: float | None = 0.3, verdict: str = "correct", status: str = "OK", **more: object) -> Body:
    return {"reward": reward, "verdict": verdict, "status": status, "feedback": "said", **more}


def by_candidate(body: Body) -> Answer:
    """The candidate is the reward, as a number, or `?` where nobody knows."""
    text = body["candidate"]
    if text == "?":
        return 200, verdict(None, "inconclusive", "UNSUPPORTED")
    return 200, verdict(float(text))


class Stub:
    """Answers what `script` holds, one after the other, and then as `always` says."""

    def __init__(self, *script: Answer, always: Callable[[Body], Answer] = by_candidate) -> None:
        self.script = list(script)
        self.always = always
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most_open = 0
        self.latency = 0.0

    def __enter__(self) -> Stub:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(240)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(240)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> str:
        self._ended = asyncio.Event()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/evaluate", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def _answer(self, request: web.Request) -> web.Response:
        asked = json.loads(await request.text())
        self.bodies.append(asked)
        self.headers.append(dict(request.headers))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.latency)
            told = self.script.pop(0) if self.script else self.always(asked)
            if told == "hang":
                await self._ended.wait()
            if isinstance(told, str):
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            body = told[1] if isinstance(told[1], str | bytes) else json.dumps(told[1])
            raw = body.encode() if isinstance(body, str) else body
            return web.Response(status=told[0], body=raw, headers=told[2] if len(told) > 2 else None)
        finally:
            self.open -= 1
