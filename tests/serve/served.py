"""`kernelmill serve` as a process of its own, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from tests.conftest import command
from tests.evaluate.corpus import Case

TOKEN = "a-token-that-is-never-logged"
START_SECONDS = 240


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def pair(case: Case, mark: str = "", **more: object) -> dict[str, object]:
    """A request for `/evaluate`; another `mark` makes it another content."""
    code = f"{case.code}\n# {mark}\n" if mark else case.code
    return {"reference": case.reference, "candidate": code, "entry_point": case.entry_point, **more}


def until(met: Callable[[], Any], what: str, seconds: float = 240.0) -> Any:
    """Wait for something to be so, and give it."""
    end = time.monotonic() + seconds
    while not (found := met()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


class Served:
    def __init__(self, folder: Path, *flags: object, start: Callable[..., list[str]] = command) -> None:
        self.log = folder / "serve.log"
        self._stderr = self.log.open("wb")
        self.process = subprocess.Popen(
            start("serve", "--port", 0, "--token-env", "SERVE_TOKEN", *flags),
            cwd=folder,
            env={**os.environ, "SERVE_TOKEN": TOKEN},
            stderr=self._stderr,
        )

    def __enter__(self) -> Served:
        found = until(
            lambda: re.search(r"http://127\.0\.0\.1:(\d+)", self._said()), "the address", START_SECONDS
        )
        self.port = int(found[1])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.stop()
        self._stderr.close()

    def _said(self) -> str:
        assert self.process.poll() is None, f"serve ended: {self.log.read_text('utf-8')}"
        return self.log.read_text("utf-8")

    def wait_until_ready(self) -> Served:
        until(lambda: self.get("/health").status == 200, "the service to be ready", START_SECONDS)
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit status."""
        self.process.send_signal(number)
        return self.process.wait(240)

    def processes(self, worker: str = "") -> list[psutil.Process]:
        """All that it has started, or the one whose command line names this worker."""
        found = psutil.Process(self.process.pid).children(recursive=not worker)
        return [child for child in found if not worker or _names(child, worker)]

    def get(self, path: str, **more: Any) -> Answer:
        return self.call("GET", path, None, **more)

    def post(self, path: str, body: object, **more: Any) -> Answer:
        return self.call("POST", path, body, **more)

    def call(
        self,
        method: str,
        path: str,
        body: object,
        token: str | None = TOKEN,
        timeout: float = 240.0,
        **headers: str,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            connection.request(method, path, data, self._headers(token, headers))
            answer = connection.getresponse()
            return Answer(
                answer.status,
                {name.lower(): value for name, value in answer.headers.items()},
                answer.read().decode(),
            )
        finally:
            connection.close()

    def send(self, path: str, body: object) -> socket.socket:
        """Ask and do not wait: closing the socket is leaving."""
        data = json.dumps(body).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers(TOKEN, {}).items())
        asking = socket.create_connection(("127.0.0.1", self.port))
        asking.sendall(
            f"POST {path} HTTP/1.1\r\nHost: x\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        )
        return asking

    def _headers(self, token: str | None, headers: Mapping[str, str]) -> dict[str, str]:
        given = {"Content-Type": "application/json", **{n.replace("_", "-"): v for n, v in headers.items()}}
        return given if token is None else given | {"Authorization": f"Bearer {token}"}

    def metrics(self) -> dict[str, float]:
        """By name and labels, as they stand on the page."""
        lines = [line for line in self.get("/metrics").text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def total(metrics: Mapping[str, float], name: str) -> float:
    return sum(value for key, value in metrics.items() if re.split(r"[{ ]", key)[0] == f"kernelmill_{name}")


def _names(process: psutil.Process, worker: str) -> bool:
    try:
        return any(worker in word for word in process.cmdline())
    except psutil.Error:
        return False  # it is ending
