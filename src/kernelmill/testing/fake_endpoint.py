"""An OpenAI-compatible endpoint that misbehaves on script: a real HTTP server on loopback.

    with FakeEndpoint(reply=lambda request: "hello", script=["429", "ok", "drop"]) as endpoint:
        ...  # point a client at endpoint.base_url
        assert endpoint.answered.total() == 1

or, in a separate process, which prints its address and answers `GET /fake/stats`:

    python -m kernelmill.testing.fake_endpoint --port 0 --latency 1.0 --script '{"500": 0.1, "hang": 0.02}'

The script decides what each call gets: a list (call by call, then `ok`), rates (`{"500": 0.1}`, drawn from a
seed and the request, so the same request gets the same behaviour at the same attempt), or a function of the
call. `BEHAVIOURS` names all of them. `at_once` and `per_second` are limits that it enforces with 429. `amend`
changes the body of an answer before it is sent. It accepts any key and any model, and does not stream. It
enforces `response_format` as OpenAI does (`fake_schema`): `reply` must return JSON that the schema allows.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import importlib
import json
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiohttp import web

from kernelmill.testing.fake_schema import format_fault

BEHAVIOURS = {
    "ok": "an answer that ends with `stop`",
    "429": "too many requests, with no word about when to come back",
    "429-retry-after": "too many requests, with Retry-After",
    "limited": "too many requests by the endpoint's own limits (`at_once`, `per_second`), with Retry-After where that is set",
    "500": "internal error",
    "503": "overloaded",
    "hang": "nothing at all, until the client gives up",
    "drop": "the connection breaks in the middle of the body",
    "malformed": "status 200, and a body that is not JSON",
    "length": "an answer that was cut: finish_reason is `length`",
    "empty": "an answer with no text",
    "tags": "an answer whose tags are not the ones asked for",
    "not-json": "an answer that is cut, though it ends with `stop`: of JSON, something that is none",
    "refusal": "the model declines",
    "slow": "an answer that starts late",
    "400": "bad request",
    "no-format": "bad request where it has a `response_format`, else an answer",
    "401": "wrong key",
    "403": "forbidden",
    "404": "no such model",
    "quota": "429 with insufficient_quota",
}
CHAOS = (
    "429", "429-retry-after", "500", "hang", "drop", "malformed", "length", "empty", "tags", "refusal", "slow",
)  # fmt: skip
"""Transient behaviours: a good client gets through all of them."""

_ERRORS = {
    "429": (429, "rate_limit_exceeded", "Rate limit reached"),
    "429-retry-after": (429, "rate_limit_exceeded", "Rate limit reached"),
    "limited": (429, "rate_limit_exceeded", "Rate limit reached"),
    "500": (500, "server_error", "The server had an error"),
    "503": (503, "overloaded", "The server is overloaded"),
    "400": (400, "invalid_request_error", "Unsupported parameter"),
    "no-format": (400, "invalid_request_error", "'response_format' of type 'json_schema' is not supported"),
    "401": (401, "invalid_api_key", "Incorrect API key provided"),
    "403": (403, "permission_denied", "This key may not use this model"),
    "404": (404, "model_not_found", "The model does not exist"),
    "quota": (429, "insufficient_quota", "You exceeded your current quota"),
}


class Seen(NamedTuple):
    """One call as the server saw it."""

    key: str
    """Hash of the request's body."""
    number: int
    """How many calls came before it."""
    attempt: int
    """How many calls with the same body came before it."""
    behaviour: str
    body: dict[str, Any]
    headers: dict[str, str]
    """Names in lower case."""


Script = Sequence[str] | Mapping[str, float] | Callable[[str, int, int], str]
Reply = Callable[[dict[str, Any]], str]


def difficulty_for(text: str) -> str:
    """Derive a difficulty from the text alone, so that a test can tell a right answer from a wrong one."""
    return ("low", "medium", "high")[hashlib.sha256(text.encode()).digest()[0] % 3]


def rate_reply(body: dict[str, Any]) -> str:
    """Answer a rating prompt with `difficulty_for` of the user's message."""
    difficulty = difficulty_for(body["messages"][-1]["content"])
    if "response_format" in body:
        return json.dumps({"evaluation": "Rated by its hash.", "difficulty": difficulty})
    return f"Rated by its hash.\n<difficulty>{difficulty}</difficulty>"


class FakeEndpoint:
    """The server, in a thread of this process. Use it as a context manager."""

    def __init__(
        self,
        reply: Reply = rate_reply,
        script: Script = (),
        *,
        amend: Callable[[dict[str, Any]], object] = dict,
        latency: float = 0.0,
        slow: float = 1.0,
        retry_after: float = 1.0,
        at_once: int | None = None,
        per_second: int | None = None,
        port: int = 0,
        seed: int = 0,
        remember: bool = True,
    ) -> None:
        unknown = set() if callable(script) else set(script) - set(BEHAVIOURS)
        if unknown:
            raise ValueError(
                f"no such behaviour: {', '.join(sorted(unknown))} (known: {', '.join(BEHAVIOURS)})"
            )
        self._reply = reply
        self._script = script
        self._amend = amend
        self._latency = latency
        self._slow = slow
        self._retry_after = retry_after
        self._at_once = at_once
        self._per_second = per_second
        self._serving = 0
        self._begun: deque[float] = deque()
        """When the calls of the last second were accepted."""
        self._port = port
        self._seed = seed
        self._remember = remember
        self.seen: list[Seen] = []
        """All calls, if `remember` is on."""
        self.asked: Counter[str] = Counter()
        """Calls by the hash of their body."""
        self.answered: Counter[str] = Counter()
        """Good answers that were sent completely, by the hash of the request's body."""
        self.behaved: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.first_call: float | None = None
        self.last_reply = 0.0
        """`first_call` and this are the times of the monotonic clock between which it was called."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def __enter__(self) -> FakeEndpoint:
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="fake-endpoint", daemon=True)
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the fake endpoint did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def _serve(self, ready: threading.Event) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self.run(ready.set))

    async def run(self, ready: Callable[[], object]) -> None:
        """Serve until `stop` is called; `ready` is called once the port is open."""
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/fake/stats", self._stats)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._port, backlog=4096)
        await site.start()
        self._port = runner.addresses[0][1]
        ready()
        try:
            await self._stop.wait()
        finally:
            await runner.cleanup()

    async def _stats(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "calls": self.asked.total(),
                "asked": self.asked,
                "answered": self.answered,
                "behaved": self.behaved,
                "in_flight": self.in_flight,
                "most_in_flight": self.most_in_flight,
                "seconds": self.last_reply - (self.first_call or self.last_reply),
            }
        )

    def choose(self, key: str, number: int, attempt: int) -> str:
        """Return the script's behaviour for a call."""
        if callable(self._script):
            return self._script(key, number, attempt)
        if isinstance(self._script, Mapping):
            draw = random.Random(f"{self._seed}/{key}/{attempt}").random()
            for behaviour, rate in self._script.items():
                draw -= rate
                if draw < 0:
                    return behaviour
            return "ok"
        return self._script[number] if number < len(self._script) else "ok"

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        key = hashlib.sha256(raw).hexdigest()
        number, attempt = self.asked.total(), self.asked[key]
        self.asked[key] += 1
        body = json.loads(raw)
        behaviour = "limited" if self._over_limit() else self.choose(key, number, attempt)
        if behaviour == "no-format" and "response_format" not in body:
            behaviour = "ok"
        self.behaved[behaviour] += 1
        if self._remember:
            self.seen.append(
                Seen(
                    key,
                    number,
                    attempt,
                    behaviour,
                    body,
                    {name.lower(): value for name, value in request.headers.items()},
                )
            )
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self._serving += behaviour != "limited"
        self.first_call = self.first_call or time.monotonic()
        try:
            return await self._behave(request, behaviour, body, key)
        finally:
            self.in_flight -= 1
            self._serving -= behaviour != "limited"
            self.last_reply = time.monotonic()

    def _over_limit(self) -> bool:
        """Whether one more call exceeds the limits; if not, count it as accepted."""
        now = time.monotonic()
        while self._begun and now - self._begun[0] >= 1.0:
            self._begun.popleft()
        over = (self._at_once is not None and self._serving >= self._at_once) or (
            self._per_second is not None and len(self._begun) >= self._per_second
        )
        if not over and self._per_second is not None:
            self._begun.append(now)
        return over

    async def _behave(
        self, request: web.Request, behaviour: str, body: dict[str, Any], key: str
    ) -> web.StreamResponse:
        if behaviour == "hang":
            await asyncio.sleep(3600)
        if behaviour in _ERRORS:
            status, code, message = _ERRORS[behaviour]
            told = behaviour == "429-retry-after" or (behaviour == "limited" and self._retry_after > 0)
            headers = {"Retry-After": f"{self._retry_after:g}"} if told else {}
            return _error(status, code, message, headers)
        if fault := format_fault(body, self._reply):
            return _error(400, "invalid_request_error", fault)
        await asyncio.sleep(self._latency + (self._slow if behaviour == "slow" else 0.0))
        if behaviour == "malformed":
            return web.Response(text='{"id": "x", "choices": [{"mess', content_type="application/json")
        answer = json.dumps(self._amend(self._completion(behaviour, body))).encode()
        if behaviour == "drop":
            response = web.StreamResponse(
                headers={"Content-Length": str(len(answer)), "Content-Type": "application/json"}
            )
            await response.prepare(request)
            await response.write(answer[: len(answer) // 2])
            if request.transport is not None:
                request.transport.abort()
            return response
        if behaviour in ("ok", "slow"):
            self.answered[key] += 1
        return web.Response(body=answer, content_type="application/json")

    def _completion(self, behaviour: str, body: dict[str, Any]) -> dict[str, Any]:
        text: str | None = self._reply(body)
        assert text is not None
        finish, refusal = "stop", None
        prompt = sum(len(str(message.get("content", ""))) for message in body["messages"])
        tokens = len(text) // 4 + 1
        if behaviour in ("length", "not-json"):
            text, finish = text[: len(text) // 2], "length" if behaviour == "length" else "stop"
        elif behaviour == "empty":
            text = ""
        elif behaviour == "tags":
            text = text.replace("<", "[").replace(">", "]")
        elif behaviour == "refusal":
            text, refusal = None, "I cannot help with that."
        return {
            "id": "fake",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": refusal},
                    "finish_reason": finish,
                }
            ],
            "usage": {
                "prompt_tokens": prompt // 4 + 1,
                "completion_tokens": tokens,
                "total_tokens": prompt // 4 + 1 + tokens,
                "completion_tokens_details": {"reasoning_tokens": tokens // 2},
            },
        }


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    error = {"error": {"message": message, "type": code, "code": code}}
    return web.json_response(error, status=status, headers=headers)


def _named_reply(name: str) -> Reply:
    """Look up a reply: `rate`, `text:…` (always that text), or `package.module:function`."""
    if name == "rate":
        return rate_reply
    if name.startswith("text:"):
        return lambda _: name.removeprefix("text:")
    module, _, function = name.partition(":")
    reply: Reply = getattr(importlib.import_module(module), function)
    return reply


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kernelmill.testing.fake_endpoint",
        description="An OpenAI-compatible endpoint on loopback that misbehaves on script.",
        epilog="behaviours: " + "; ".join(f"{name}: {what}" for name, what in BEHAVIOURS.items()),
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds each answer takes")
    parser.add_argument("--slow", type=float, default=1.0, help="seconds more for `slow`")
    parser.add_argument(
        "--retry-after",
        type=float,
        default=1.0,
        help="seconds in Retry-After (0: --at-once and --per-second send none)",
    )
    parser.add_argument("--at-once", type=int, help="calls it takes at a time; more are answered with 429")
    parser.add_argument("--per-second", type=int, help="calls it takes a second; more are answered with 429")
    parser.add_argument(
        "--script", default="[]", help='JSON: a list of behaviours, or rates such as {"500": 0.1}'
    )
    parser.add_argument("--seed", type=int, default=0, help="for the rates")
    parser.add_argument("--reply", default="rate", help="rate, text:…, or package.module:function")
    options = parser.parse_args()
    endpoint = FakeEndpoint(
        _named_reply(options.reply),
        json.loads(options.script),
        latency=options.latency,
        slow=options.slow,
        retry_after=options.retry_after,
        at_once=options.at_once,
        per_second=options.per_second,
        port=options.port,
        seed=options.seed,
        remember=False,
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(endpoint.run(lambda: print(endpoint.base_url, flush=True)))


if __name__ == "__main__":
    main()
