"""`kernelmill serve`: flags, the socket, start and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ipaddress
import logging
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import FrameType

from kernelmill.base.terminal import say
from kernelmill.errors import ConfigError
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.verdict import Verdict
from kernelmill.sandbox import START_SECONDS
from kernelmill.settings.config import secret
from kernelmill.settings.options import Device, ToolSettings, device_option, option, workers_option

try:
    import prometheus_client  # noqa: F401  `serve.metrics` needs it
    import uvicorn
    from fastapi import FastAPI
except ImportError as error:
    raise ConfigError(f"serve needs {error.name}: pip install 'kernelmill[serve,eval]'") from None

from kernelmill.base.event_loop_thread import EventLoopThread
from kernelmill.serve import arrival
from kernelmill.serve.app import make_app
from kernelmill.serve.gate import Gate
from kernelmill.serve.service import Service

GRACE_SECONDS = 3.0
"""How long requests in flight may take once the service is told to stop."""
log = logging.getLogger("kernelmill.serve")


@dataclass(frozen=True, kw_only=True)
class ServeSettings(ToolSettings):
    """Judge candidates behind HTTP, for trainers."""

    abbreviations = True
    host: str = option("127.0.0.1", "address to listen on", metavar="ADDRESS")
    port: int = option(18188, "0: any that is free", least=0)
    workers: int | None = workers_option("candidates")
    queue: int = option(256, "queue length", least=1)
    cache: int = option(1024, "verdicts remembered", least=0)
    token_env: str | None = option(
        None, "environment variable with the bearer token that callers must send", metavar="NAME"
    )
    insecure: bool = option(False, "listen beyond this machine without a token")
    device: Device = device_option()
    reward: str = option(
        "default",
        lambda: f"reward returned in the `reward` field: {rewards.REWARDS.listed()}",
        metavar="NAME",
    )
    timeout: int = option(
        60,
        "seconds one candidate may take in one tier; a request may ask for less",
        least=1,
        metavar="SECONDS",
    )
    max_bytes: int = option(16 << 20, "maximum request body in bytes", least=1)
    quiet: bool = option(False, "log only what went wrong, not every request")


def main(flags: ServeSettings) -> int:
    rewards.find(flags.reward)
    token = _token(flags.token_env)
    timeout = float(flags.timeout)
    options = Options(device=flags.device, timeout=timeout, call_timeout=min(Options.call_timeout, timeout))
    with (
        _listen(flags.host, flags.port, safe=token is not None or flags.insecure) as listening,
        Evaluator(options, flags.workers) as evaluator,
    ):
        return _serve(flags, evaluator, listening, token)


def _serve(flags: ServeSettings, evaluator: Evaluator, listening: socket.socket, token: str | None) -> int:
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING
    )
    log.setLevel(logging.WARNING if flags.quiet else logging.INFO)

    def view(options: Options) -> Evaluator:
        """Return the same warm processes with other options."""
        other = copy.copy(evaluator)
        other.options, other.tier = options, options.tier or evaluator.tier
        return other

    async def judge(pair: Pair, options: Options) -> Verdict:
        return await asyncio.wrap_future(judging.submit(view(options).evaluate(pair)))

    async def static_verdict(pair: Pair, options: Options) -> Verdict | None:
        async def read() -> Verdict | None:
            return view(options).static_verdict(pair)

        return await asyncio.wrap_future(judging.submit(read()))

    # Parsing a long candidate takes a while: in a separate thread it does not block `/health`.
    judging = EventLoopThread("kernelmill judging")
    options = evaluator.options
    service = Service(
        judge,
        options,
        # Twice as many with a GPU: some use the GPU while others use the CPU.
        workers=evaluator.workers * (2 if evaluator.tier.startswith("gpu") else 1),
        queue=flags.queue,
        cache=flags.cache,
        # An evaluation has its own timeouts; this one applies if they fail.
        hard_timeout=20 * (options.timeout + 15) + START_SECONDS,
        static_verdict=static_verdict,
    )
    server: _Server

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        """Start the evaluator while `/health` already responds; end every process before the loop ends."""
        starting = asyncio.create_task(_start(evaluator, service, server))
        yield
        starting.cancel()
        await service.stop(0)
        await asyncio.to_thread(judging.close, asyncio.to_thread(evaluator.close))

    app = make_app(service, flags.reward, life)
    # Requests that wait for another request's verdict take no slot in the queue, so they are bounded here.
    app.add_middleware(
        Gate, metrics=service.metrics, token=token, max_bytes=flags.max_bytes,
        max_open=4 * (service.workers + service.queue) + 64,
    )  # fmt: skip
    server = _Server(
        uvicorn.Config(
            app,
            loop="asyncio",
            http=arrival.protocol(service.metrics),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=int(GRACE_SECONDS) + 2,
        ),
        service,
    )
    host, port = listening.getsockname()[:2]
    say(
        f"kernelmill serve: http://{f'[{host}]' if ':' in host else host}:{port} (pid {os.getpid()}), starting"
    )
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises the signal again after handling it
        server.run(sockets=[listening])
    if server.failed is not None:
        raise server.failed
    say("kernelmill serve: stopped")
    return 0


class _Server(uvicorn.Server):
    """A uvicorn server that tells the service to stop, so that requests in flight are answered in time."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.failed: Exception | None = None
        self._service = service
        self._stopping: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        with contextlib.suppress(RuntimeError):  # no loop is running, so nothing is in flight
            asyncio.get_running_loop().call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        self.should_exit = True
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._service.stop(GRACE_SECONDS))


async def _start(evaluator: Evaluator, service: Service, server: _Server) -> None:
    begun = time.monotonic()
    try:
        await evaluator.start()
        await service.warm_up()
    except Exception as error:  # noqa: BLE001  re-raised after the server has ended
        server.failed = error
        server.stop()
        return
    say(f"kernelmill serve: ready after {time.monotonic() - begun:.1f} s ({service.tier})")


def _token(name: str | None) -> str | None:
    if name is None:
        return None
    token = secret(name)
    if not token:
        raise ConfigError(f"--token-env {name}: {name} is not set or empty")
    return token


def _listen(host: str, port: int, safe: bool) -> socket.socket:
    """Open a listening socket. An address that other machines can reach requires `safe`."""
    if port > 65535:  # getaddrinfo would truncate it to 16 bits
        raise ConfigError(f"--port {port}: expected a number up to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host} --port {port}: {error}") from None
    family, _, _, _, address = found[0]
    if not safe and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ConfigError(
            f"--host {host} is reached by other machines: set a token (--token-env NAME) or say --insecure"
        )
    try:
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        raise ConfigError(f"cannot listen on {host} port {port}: {error}") from None
