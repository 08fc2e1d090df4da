"""The parent's side: start a server, send it requests, and turn the outcomes into replies."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from types import TracebackType
from typing import Any

from kernelmill.base.missing import install
from kernelmill.errors import ConfigError
from kernelmill.sandbox.own_time import OwnTime
from kernelmill.sandbox.reply import Doing, Reply, make_reply, reply_from_event, signal_name
from kernelmill.sandbox.scratch import remove_tree
from kernelmill.sandbox.wire import MAX_REQUEST, Config, Settings, pack, read_frames

START_SECONDS = 120.0
CHILD_PATH = "/usr/local/bin:/usr/bin:/bin"

_BOOT = """
import json, sys
config = json.loads(sys.argv[1])
sys.path[:] = config["path"]
from kernelmill.sandbox.server import serve
serve(config)
"""
FORKED = "made in the process that this one was forked from: make one in each process"


class Sandbox:
    """A warm server for one worker module. Safe to use from several threads and event loops.

    `workers` requests run at once, the others wait. `timeout` limits a request's own time (`own_time`):
    waiting for a worker, a CPU or the GPU lock does not count. If the server dies, the next request restarts it.

    `companions` is the number of further processes per request. `programs` are the files that children may
    execute. `environment` is added to the server's minimal environment. `gpu` lets children use the
    machine's GPUs; the server itself must not use them. `reuse` is the number of requests a child may serve, one
    after the other; its companions are new for each request.
    """

    def __init__(
        self,
        worker: str,
        workers: int = 2,
        timeout: float = 30.0,
        memory_mb: int = 4096,
        companions: int = 0,
        programs: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        gpu: bool = False,
        reuse: int = 1,
    ) -> None:
        self._settings = Settings(
            worker=worker,
            workers=workers,
            timeout=timeout,
            memory_mb=memory_mb,
            companions=companions,
            reuse=reuse,
            programs=list(programs),
            environment=dict(environment or {}),
            gpu=gpu,
        )
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._closed = False
        self._process = os.getpid()

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def run(self, request: dict[str, Any], timeout: float | None = None) -> Reply:  # noqa: ASYNC109
        """Run one request, with the default timeout or with `timeout`. Cancelling this kills the child."""
        submission = _Submission()
        try:
            future = await asyncio.to_thread(self._submit, request, timeout, submission)
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            submission.cancel()
            raise

    def run_sync(self, request: dict[str, Any]) -> Reply:
        return self._submit(request, None, _Submission()).result()

    def doing(self) -> list[Doing]:
        """What each running request is doing. `label` is the one passed in the request."""
        connection = self._connection
        return [] if connection is None else connection.doing()

    def start(self) -> None:
        """Start the server without waiting until it is ready. The first request does so, too."""
        self._connect()

    def what_is_missing(self) -> list[str]:
        """Wait until the server is ready. Returns the protections that this machine does not support."""
        return list(self._connect().wait_until_ready())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> _Connection:
        if self._process != os.getpid():  # replies would go to the parent process
            raise RuntimeError(FORKED)
        with self._lock:
            if self._closed:
                raise RuntimeError("this Sandbox is closed")
            if self._connection is not None and self._connection.ended:
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = _Connection(self._settings)
            return self._connection

    def _submit(
        self, request: dict[str, Any], timeout: float | None, submission: _Submission
    ) -> Future[Reply]:
        connection = self._connect()
        connection.wait_until_ready()
        number, future = connection.submit(request, timeout or self._settings["timeout"])
        submission.sent(connection, number)
        return future


class _Submission:
    """A request on its way to the server. It may be cancelled at any moment, also before it is sent.

    The sending thread continues even if its event loop is cancelled. Whichever of sender and canceller comes
    second tells the server.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: tuple[_Connection, int] | None = None
        self._cancelled = False

    def sent(self, connection: _Connection, number: int) -> None:
        with self._lock:
            self._sent = connection, number
            if self._cancelled:
                connection.cancel(number)

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._sent is not None:
                connection, number = self._sent
                connection.cancel(number)


def what_is_missing() -> list[str]:
    """`Sandbox.what_is_missing` without a worker, which takes only a moment: for `doctor`."""
    with Sandbox(worker="json") as sandbox:
        return sandbox.what_is_missing()


class _Connection:
    """One server process, seen from the parent."""

    def __init__(self, settings: Settings) -> None:
        self.ended = False
        self._ready: Future[list[str]] = Future()
        self._pending: dict[int, Future[Reply]] = {}
        self._labels: dict[int, str] = {}
        self._doing: list[dict[str, Any]] = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._scratch = tempfile.mkdtemp(prefix="kernelmill-")
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = _start_server(settings, self._scratch, theirs.fileno())
            except OSError as error:
                self._socket.close()
                os.rmdir(self._scratch)
                raise ConfigError(f"cannot start {sys.executable or 'Python'}: {error.strerror}") from None
        self._clock = OwnTime.of(self._process.pid)
        self._started = self._clock.mark()
        self._reader = threading.Thread(target=self._read, name="sandbox", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> list[str]:
        left = START_SECONDS
        while left > 0:
            try:
                return self._ready.result(left)
            except FutureTimeout:  # it may have been waiting for a CPU
                left = START_SECONDS - self._clock.since(self._started)
        raise ConfigError(f"the sandboxed process did not start in {START_SECONDS:.0f} s")

    def submit(self, request: dict[str, Any], timeout: float) -> tuple[int, Future[Reply]]:
        number, future = next(self._numbers), Future[Reply]()
        frame = json.dumps({"id": number, "request": request, "timeout": timeout}).encode()
        if len(frame) > MAX_REQUEST:
            message = f"the request has {len(frame)} bytes, the limit is {MAX_REQUEST}"
            future.set_result(make_reply("error", type="ValueError", message=message))
            return number, future
        self._labels[number] = str(request.get("label", ""))
        self._pending[number] = future
        self._send(frame)
        if self.ended:
            self._fail_pending()
        return number, future

    def doing(self) -> list[Doing]:
        found = []
        for one in self._doing:
            lock: Any = ""
            if "exclusive" in one:
                told = {True: ("waits for exclusive use", "exclusive"), False: ("waits", "shared")}
                lock = told[one["exclusive"]][not one["waits"]]
            label = self._labels.get(one["id"])
            if label is not None:
                since = one.get("lock_since", one["since"])
                found.append(
                    Doing(
                        label=label,
                        doing=one["doing"],
                        since=one["since"],
                        gpu_lock=lock,
                        gpu_lock_since=since,
                    )
                )
        return found

    def cancel(self, number: int) -> None:
        self._labels.pop(number, None)
        self._send(json.dumps({"cancel": number}).encode())

    def close(self) -> None:
        if not self._ready.done():
            self._process.kill()  # it is still importing, and has no child to end
        with contextlib.suppress(OSError):  # not connected: the server is gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children die with it
            self._process.wait()
        self._reader.join()
        self._socket.close()
        self._clock.close()
        if os.path.exists(self._scratch):  # the server was killed before it could remove it
            with contextlib.suppress(OSError):  # its children may still be dying
                remove_tree(self._scratch)

    def _send(self, frame: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # a dead server: the reader thread reports it
            self._socket.sendall(pack(frame))

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                for frame in read_frames(stream):
                    self._dispatch(frame)
        except (OSError, ValueError):
            pass  # cut in the middle of a frame: the server died, which is handled below
        finally:
            self.ended = True
            code = self._process.wait()
            end = f"ended with status {code}" if code >= 0 else f"was killed by {signal_name(-code)}"
            if not self._ready.done():
                self._ready.set_exception(ConfigError(f"the sandboxed process {end} before it was ready"))
            self._fail_pending(f"the server {end}")

    def _fail_pending(self, message: str = "the server ended") -> None:
        for number in list(self._pending):
            if (future := self._pending.pop(number, None)) is not None:
                _resolve(future, make_reply("crashed", message=message))

    def _dispatch(self, frame: bytes) -> None:
        head, _, body = frame.partition(b"\n")
        event = json.loads(head)
        if "missing" in event:
            self._ready.set_result(event["missing"])
        elif "failed" in event:
            self._ready.set_exception(ConfigError(_no_start(event["failed"])))
        elif "doing" in event:
            self._doing = event["doing"]
        elif (future := self._pending.pop(event["id"], None)) is not None:
            self._labels.pop(event["id"], None)
            _resolve(future, reply_from_event(event, body))


def server_config(settings: Settings, scratch: str, fd: int) -> Config:
    # A script has the current folder on its path as '': the server must not import from there.
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    path.append(str(Path(__file__).resolve().parents[2]))  # where this kernelmill is installed
    return Config(**settings, path=path, scratch=scratch, parent=os.getpid(), fd=fd)


def server_environment(settings: Settings, scratch: str) -> dict[str, str]:
    return {
        "PATH": CHILD_PATH,
        "LANG": "C.UTF-8",
        "HOME": scratch,
        "TMPDIR": scratch,
        "OMP_NUM_THREADS": "1",
    } | settings["environment"]


def _start_server(settings: Settings, scratch: str, fd: int) -> subprocess.Popen[bytes]:
    # Not PR_SET_PDEATHSIG: it would fire when the thread that started the server ends. The server ends when
    # the socket closes or this process ends.
    return subprocess.Popen(
        [sys.executable, "-I", "-u", "-c", _BOOT, json.dumps(server_config(settings, scratch, fd))],
        env=server_environment(settings, scratch),
        cwd=scratch,
        pass_fds=[fd],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the parent handles Ctrl-C
    )


def _resolve(future: Future[Reply], reply: Reply) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled
        future.set_result(reply)


def _no_start(why: str) -> str:
    """Say why the server cannot start, and what to install if torch is missing."""
    if why.startswith("ModuleNotFoundError: No module named 'torch'"):
        return f"running modules needs torch: {install('eval')}"
    return f"the sandboxed process cannot start: {why}"
