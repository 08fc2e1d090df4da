"""The endpoints. Every error is a JSON object with one line in `error`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Lifespan

from kernelmill.evaluate.options import environment
from kernelmill.serve import pages
from kernelmill.serve.bodies import (
    BatchRequest,
    EvaluateRequest,
    KernelBenchRequest,
    eval_answer,
    evaluate_answer,
)
from kernelmill.serve.gate import GONE
from kernelmill.serve.metrics import CONTENT_TYPE
from kernelmill.serve.service import Full, Job, NotReady, Service, Waiter, trouble

NDJSON = "application/x-ndjson"


class _Gone(Exception):
    """The client disconnected."""


def make_app(service: Service, reward: str, lifespan: Lifespan[FastAPI] | None = None) -> FastAPI:
    # FastAPI's own documentation pages load scripts from other hosts; `pages` has ours.
    app = FastAPI(
        title="kernelmill",
        version=environment()["evaluator"],
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _say_errors(app)

    def job(body: EvaluateRequest) -> Job:
        limit = service.options.timeout
        if body.timeout is not None and body.timeout > limit:
            raise HTTPException(
                422, f"timeout: {body.timeout:g} s is more than this service allows ({limit:g} s)"
            )
        options = body.options(service.options)
        return Job(body.pair(options), options)

    @app.post("/evaluate")
    async def evaluate(body: EvaluateRequest, request: Request) -> Response:
        asked = job(body)
        async with _tickets(service, [asked], request) as (waiter,):
            await _all(waiter)
            return JSONResponse(evaluate_answer(waiter.result(), asked.pair.id, body.reward or reward))

    @app.post("/evaluate/batch")
    async def batch(body: BatchRequest, request: Request) -> Response:
        if len(body.pairs) > service.queue:
            raise HTTPException(413, f"{len(body.pairs)} pairs: this service takes {service.queue} at a time")
        jobs = [job(pair) for pair in body.pairs]
        names = [pair.reward or reward for pair in body.pairs]
        if NDJSON in request.headers.get("accept", ""):
            # Errors must be raised before the stream begins.
            return StreamingResponse(
                _stream(jobs, names, await service.take(jobs), request), media_type=NDJSON
            )
        async with _tickets(service, jobs, request) as waiters:
            await _all(*waiters)
            return JSONResponse(
                [
                    evaluate_answer(waiter.result(), asked.pair.id, name)
                    for waiter, asked, name in zip(waiters, jobs, names, strict=True)
                ]
            )

    @app.post("/eval")
    async def eval_(body: KernelBenchRequest, request: Request) -> Response:
        options = body.options(service.options, service.tier)
        asked = Job(body.pair(options), options)
        async with _tickets(service, [asked], request) as (waiter,):
            await _all(waiter)
            verdict = waiter.result()
            answer = eval_answer(verdict, body, asked.pair.id, reward)
            if verdict.status != "INFRA_ERROR":
                return JSONResponse(answer)
            # This contract cannot express "unknown": the trainer is to retry, not to punish.
            error = f"the service has trouble of its own: {verdict.error}"
            return JSONResponse({"error": error, **answer}, 503, {"Retry-After": "1"})

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def overview() -> Response:
        return HTMLResponse(pages.overview())

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(pages.reference(reward))

    @app.get("/health")
    async def health(request: Request) -> Response:
        status = 200 if service.state == "ready" else 503
        if not request.state.trusted:
            return JSONResponse({"status": service.state}, status)
        return JSONResponse(_health(service, reward), status)

    @app.get("/metrics")
    async def metrics() -> Response:
        now = {
            "queue_depth": service.waiting,
            "in_flight": service.in_flight,
            "ready": int(service.state == "ready"),
        }
        return PlainTextResponse(service.metrics.text(now), media_type=CONTENT_TYPE)

    return app


def _health(service: Service, reward: str) -> dict[str, Any]:
    return {
        "status": service.state,
        "device": None if service.tier is None else "cuda" if service.tier.startswith("gpu") else "cpu",
        "hardware": service.hardware,
        "tier": service.tier,
        "versions": environment(),
        "workers": service.workers,
        "in_flight": service.in_flight,
        "queue_depth": service.waiting,
        "queue_limit": service.queue,
        "timeout_s": service.options.timeout,
        "reward": reward,
        "sandbox_missing": service.missing,
    }


@contextlib.asynccontextmanager
async def _tickets(
    service: Service, jobs: Sequence[Job], request: Request
) -> AsyncIterator[Sequence[Waiter]]:
    waiters = await service.take(jobs)
    async with _held(waiters, request):
        yield waiters


@contextlib.asynccontextmanager
async def _held(waiters: Sequence[Waiter], request: Request) -> AsyncIterator[None]:
    """Cancel the waiters when the client disconnects, and in any case at the end."""

    def give_up() -> None:
        for waiter in waiters:
            waiter.cancel()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        give_up()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        give_up()


async def _all(*waiters: Waiter) -> None:
    """Wait for all waiters. Raises `_Gone` if the client disconnected."""
    await asyncio.wait(waiters)
    if any(waiter.cancelled() for waiter in waiters):
        raise _Gone


async def _stream(
    jobs: Sequence[Job], names: Sequence[str], waiters: Sequence[Waiter], request: Request
) -> AsyncIterator[bytes]:
    """Yield a line for each verdict as it arrives. `index` identifies the pair."""
    done: asyncio.Queue[int] = asyncio.Queue()
    for number, waiter in enumerate(waiters):
        waiter.add_done_callback(lambda _, number=number: done.put_nowait(number))  # type: ignore[misc]
    async with _held(waiters, request):
        for _ in waiters:
            number = await done.get()
            if waiters[number].cancelled():
                return
            id, stopped = jobs[number].pair.id, waiters[number].exception()
            verdict = trouble(id, str(stopped)) if stopped else waiters[number].result()
            row = {"index": number, **evaluate_answer(verdict, id, names[number])}
            yield json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _say_errors(app: FastAPI) -> None:
    def say(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"error": " ".join(message.split())[:500]}, status, headers)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return say(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        hint = ""
        if not request.headers.get("content-type", "").startswith("application/json"):
            hint = " (send Content-Type: application/json)"
        return say(422, f"{where}: {first['msg']}{hint}" if where else f"{first['msg']}{hint}")

    @app.exception_handler(Full)
    async def full(request: Request, error: Full) -> Response:
        return say(429, str(error), {"Retry-After": str(error.retry_after)})

    @app.exception_handler(NotReady)
    async def not_ready(request: Request, error: NotReady) -> Response:
        return say(503, str(error), {"Retry-After": "5"})

    @app.exception_handler(_Gone)
    async def gone(request: Request, error: _Gone) -> Response:
        return Response(status_code=GONE)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        return say(500, "internal error: the log of the service has the traceback")
