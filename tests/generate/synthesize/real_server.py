"""`transformers serve` as a process of its own, on loopback and without a network."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.generate.synthesize.tiny_model import write_model

T = TypeVar("T")
_START_SECONDS = 240.0


class RealServer:
    """A server with the tiny model. Use as a context manager; its log tells which calls it was made."""

    def __init__(self, folder: Path) -> None:
        self.model = str(write_model(folder / "model"))
        """Servers that are started for one folder know their model by that name."""
        self._log = folder / "serve.log"
        self._home = folder / "home"
        self._marks = 0

    def __enter__(self) -> RealServer:
        # One thread: so small a model is many times slower with two.
        environment = {
            **os.environ,
            "HF_HOME": str(self._home),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        line = [sys.executable, "-m", "transformers.cli.transformers", "serve", self.model]
        told = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--log-level", "info"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*line, *told], stdout=log, stderr=log, env=environment, start_new_session=True
            )
        try:
            found = self._until(lambda: re.search(r"running on http://127\.0\.0\.1:(\d+)", self._said()))
            self._root = f"http://127.0.0.1:{found[1]}"
            self._until(self._is_well)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            # It leads its own group: nothing that it may have started is left.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def base_url(self) -> str:
        return f"{self._root}/v1"

    def calls(self) -> int:
        """Chat completions that the server has answered, by its own log."""
        self._marks += 1
        mark = f"/health?mark={self._marks}"
        urllib.request.urlopen(self._root + mark, timeout=240).close()
        # Lines stand in order: what was answered before the mark stands before it.
        self._until(lambda: mark in self._said())
        return self._said().count('"POST /v1/chat/completions')

    def _is_well(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._root}/health", timeout=60) as answer:
                return int(answer.status) == 200
        except urllib.error.URLError:
            return False

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def _until(self, met: Callable[[], T | None]) -> T:
        end = time.monotonic() + _START_SECONDS
        while not (found := met()):
            assert self._process.poll() is None, f"the server ended:\n{self._said()}"
            assert time.monotonic() < end, f"waited in vain for the server:\n{self._said()}"
            time.sleep(0.05)
        return found
