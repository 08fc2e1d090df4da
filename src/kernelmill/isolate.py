"""Run a stranger's code in a process that has no secrets, no network and little else.

    with Isolate() as isolate:
        reply = await isolate.run({"code": code, "entry_point": "Model"})

The parent starts one *server* with an environment made from scratch. The server imports the worker module
once (for torch that takes seconds) and forks one *child* a request, which takes milliseconds. The child gives
up what it does not need, then calls the worker's `handle(request)` and writes its reply to a private pipe,
behind a nonce, so that nothing it prints can pass for a reply. `serve` is the server's side, `_confine` what
the child gives up:

    environment   PATH, LANG, HOME and TMPDIR in a scratch folder of its own, OMP_NUM_THREADS
    files         landlock: reads Python, its packages and the system's libraries; writes its scratch folder
    network       a network namespace of the server's own; seccomp refuses sockets as well
    processes     seccomp: no new process, no program, no signal to another process
    resources     rlimits: processor time, memory, file size, open files; no core dump
    privileges    no capabilities, and none to be had (no_new_privs)
    life          a time-out, the server's end or the parent's end (also by kill -9) kills it

What a machine cannot give is not silently missing: `what_is_missing` names it. A child in which a protection
fails that the server has found to work runs nothing.

Not covered: a child can lie about the code it ran, for that code shares its process; it can fill the disk
under its scratch folder until its time is up; and flaws of the kernel or the processor are what they are.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import errno
import functools
import gc
import importlib
import itertools
import json
import os
import resource
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, TypedDict

from kernelmill.errors import ConfigError

MAX_REPLY = 8 << 20
MAX_REQUEST = 16 << 20
MAX_OUTPUT = 8 << 10
START_SECONDS = 120.0

_LENGTH = struct.Struct(">I")
_NONCE_BYTES = 16
_Handle = Callable[[dict[str, Any]], dict[str, Any]]


class Reply(TypedDict):
    """What became of a request. `output` is the end of what the child printed."""

    kind: Literal["ok", "error", "timeout", "crashed", "out_of_memory"]
    result: dict[str, Any]
    type: str
    message: str
    seconds: float
    output: str


# ------------------------------------------------------------------------------------------------ the parent


class Isolate:
    """A warm server for one worker module. Safe to use from several threads and event loops.

    `workers` requests run at once, the others wait; `timeout` counts from when a request starts to run. A
    server that died is started again by the next request.
    """

    def __init__(
        self,
        worker: str = "kernelmill.problems.trace_worker",
        workers: int = 2,
        timeout: float = 30.0,
        memory_mb: int = 4096,
    ) -> None:
        self._config = {"worker": worker, "workers": workers, "timeout": timeout, "memory_mb": memory_mb}
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._closed = False

    def __enter__(self) -> Isolate:
        self._connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def run(self, request: dict[str, Any]) -> Reply:
        """Run one request. Cancelling this kills the child."""
        connection, number, future = await asyncio.to_thread(self._submit, request)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            connection.cancel(number)
            raise

    def run_sync(self, request: dict[str, Any]) -> Reply:
        return self._submit(request)[2].result()

    def what_is_missing(self) -> list[str]:
        """The protections that this machine could not give; empty when all of them hold."""
        return list(self._connect().wait_until_ready())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connect(self) -> _Connection:
        with self._lock:
            if self._closed:
                raise RuntimeError("this Isolate is closed")
            if self._connection is not None and self._connection.ended:
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = _Connection(self._config)
            return self._connection

    def _submit(self, request: dict[str, Any]) -> tuple[_Connection, int, Future[Reply]]:
        connection = self._connect()
        connection.wait_until_ready()
        return connection, *connection.submit(request)


def what_is_missing() -> list[str]:
    """`Isolate.what_is_missing` without a worker, hence in a moment: for `doctor`."""
    with Isolate(worker="json") as isolate:
        return isolate.what_is_missing()


class _Connection:
    """One server process, seen from the parent."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.ended = False
        self._ready: Future[list[str]] = Future()
        self._pending: dict[int, Future[Reply]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._scratch = tempfile.mkdtemp(prefix="kernelmill-")
        package = Path(__file__).resolve().parent
        # The current folder is on a script's path as '': the server shall not import from there.
        path = [entry for entry in sys.path if os.path.isabs(entry)]
        config = {**config, "path": [*path, str(package.parent)], "scratch": self._scratch}
        self._socket, theirs = socket.socketpair()
        with theirs:
            config |= {"parent": os.getpid(), "fd": theirs.fileno()}
            boot = "import json, sys; c = json.loads(sys.argv[1]); sys.path[:] = c['path']; "
            boot += "from kernelmill.isolate import serve; serve(c)"
            environment = {
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": self._scratch,
                "TMPDIR": self._scratch,
                "OMP_NUM_THREADS": "1",
            }
            null = subprocess.DEVNULL
            try:
                # Not PR_SET_PDEATHSIG: it would fire at the end of the thread that happens to start the
                # server. The server ends when this socket or this process does.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-u", "-c", boot, json.dumps(config)],
                    env=environment,
                    cwd=self._scratch,
                    pass_fds=[theirs.fileno()],
                    stdin=null,
                    stdout=null,
                    stderr=null,
                    start_new_session=True,  # Ctrl-C is for the parent to act on
                )
            except OSError as error:
                self._socket.close()
                os.rmdir(self._scratch)
                raise ConfigError(f"cannot start {sys.executable or 'Python'}: {error.strerror}") from None
        self._reader = threading.Thread(target=self._read, name="isolate", daemon=True)
        self._reader.start()

    def wait_until_ready(self) -> list[str]:
        try:
            return self._ready.result(START_SECONDS)
        except FutureTimeout:
            raise ConfigError(f"the isolated worker did not start in {START_SECONDS:.0f} s") from None

    def submit(self, request: dict[str, Any]) -> tuple[int, Future[Reply]]:
        number, future = next(self._numbers), Future[Reply]()
        frame = json.dumps({"id": number, "request": request}).encode()
        if len(frame) > MAX_REQUEST:
            message = f"the request has {len(frame)} bytes, the limit is {MAX_REQUEST}"
            future.set_result(_reply("error", type="ValueError", message=message))
            return number, future
        self._pending[number] = future
        self._send(frame)
        if self.ended:
            self._fail_pending()
        return number, future

    def cancel(self, number: int) -> None:
        self._send(json.dumps({"cancel": number}).encode())

    def close(self) -> None:
        if not self._ready.done():
            self._process.kill()  # it is importing, and has no child to end
        with contextlib.suppress(OSError):  # not connected: the server is gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children die with it
            self._process.wait()
        self._reader.join()
        self._socket.close()
        if os.path.exists(self._scratch):  # the server was killed, and removed nothing
            with contextlib.suppress(OSError):  # its children may still be dying
                _remove_tree(self._scratch)

    def _send(self, frame: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # a dead server: the reading thread tells everybody
            self._socket.sendall(_LENGTH.pack(len(frame)) + frame)

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
                    size = _LENGTH.unpack(head)[0]
                    self._dispatch(stream.read(size))
        except (OSError, ValueError):
            pass  # cut in the middle of a frame: the server died, which is what comes next
        finally:
            self.ended = True
            code = self._process.wait()
            end = f"ended with status {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
            if not self._ready.done():
                self._ready.set_exception(ConfigError(f"the isolated worker {end} before it was ready"))
            self._fail_pending(f"the server {end}")

    def _fail_pending(self, message: str = "the server ended") -> None:
        for number in list(self._pending):
            if (future := self._pending.pop(number, None)) is not None:
                _resolve(future, _reply("crashed", message=message))

    def _dispatch(self, frame: bytes) -> None:
        head, _, body = frame.partition(b"\n")
        event = json.loads(head)
        if "missing" in event:
            self._ready.set_result(event["missing"])
        elif "failed" in event:
            self._ready.set_exception(ConfigError(f"the isolated worker cannot start: {event['failed']}"))
        elif (future := self._pending.pop(event["id"], None)) is not None:
            _resolve(future, _judge(event, body))


def _resolve(future: Future[Reply], reply: Reply) -> None:
    with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
        future.set_result(reply)


def _reply(kind: Literal["ok", "error", "timeout", "crashed", "out_of_memory"], **rest: Any) -> Reply:
    reply = Reply(kind=kind, result={}, type="", message="", seconds=0.0, output="")
    reply.update(rest)  # type: ignore[typeddict-item]
    return reply


def _judge(event: dict[str, Any], body: bytes) -> Reply:
    """What the server saw, as a reply."""
    rest = {"seconds": event["seconds"], "output": event["output"]}
    status = event["status"]
    if event["how"] == "reply":
        try:
            said = json.loads(body)
            if said["kind"] == "ok" and isinstance(said["result"], dict):
                return _reply("ok", result=said["result"], **rest)
            if said["kind"] in ("error", "out_of_memory"):
                return _reply(said["kind"], type=str(said["type"]), message=str(said["message"]), **rest)
        except (ValueError, RecursionError, TypeError, LookupError):
            pass  # not what our child writes
        event["how"] = "torn"
    if event["how"] == "torn":
        return _reply("crashed", message="the reply was torn or forged", **rest)
    if event["how"] == "failed":
        return _reply("crashed", message=event["message"], **rest)
    if event["how"] == "timeout" or status == -signal.SIGXCPU:
        return _reply("timeout", message=f"timed out after {event['seconds']:.1f} s", **rest)
    if status < 0:
        kind: Literal["crashed", "out_of_memory"] = "crashed"
        if "bad_alloc" in event["output"]:  # C++ aborts where Python raises
            kind = "out_of_memory"
        return _reply(kind, message=f"killed by {_signal_name(-status)}", **rest)
    return _reply("crashed", message=f"exited with status {status} and no reply", **rest)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ------------------------------------------------------------------------------------------------ the server


@dataclass
class _Child:
    number: int
    pid: int
    reply: int
    output: int
    scratch: str
    nonce: bytes
    started: float
    data: bytearray = field(default_factory=bytearray)
    printed: bytes = b""


def serve(config: dict[str, Any]) -> None:
    """The server: import the worker, say what is missing, then fork a child a request until the parent ends."""
    control = socket.socket(fileno=config["fd"])
    config["server"] = os.getpid()
    missing = _leave_network()
    try:
        worker = importlib.import_module(config["worker"])
        prepare: Callable[[], None] | None = getattr(worker, "prepare", None)
        if prepare is not None:
            prepare()
        handle: _Handle = getattr(worker, "handle", lambda request: request)
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent is to say it
        _write_frame(control, {"failed": f"{type(error).__name__}: {_message(error)}"})
        return
    # What is here now lives as long as the server: keep the collector from copying its pages in every child.
    gc.collect()
    gc.freeze()
    server = _Server(config, control, handle)
    try:
        server.probe(missing)
        server.loop()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        server.end()


class _Server:
    def __init__(self, config: dict[str, Any], control: socket.socket, handle: _Handle) -> None:
        self.config = config
        self.control = control
        self.handle = handle
        self.expected: list[str] = []
        self.readable = _readable_paths()
        self.children: dict[int, _Child] = {}
        self.queue: collections.deque[tuple[int, dict[str, Any]]] = collections.deque()
        self.removing: set[int] = set()
        self.received = bytearray()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._on_control)

    def probe(self, missing: list[str]) -> None:
        """Let a child try every protection, and tell the parent which failed."""
        read, write = os.pipe()
        scratch = os.path.join(self.config["scratch"], "probe")
        os.mkdir(scratch, 0o700)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.write(write, json.dumps(_confine(self.config, self.readable, scratch)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            answer = stream.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.rmdir(scratch)
        if status != 0:
            _write_frame(self.control, {"failed": f"a confined process ended with status {status}"})
            return
        self.expected = json.loads(answer)
        _write_frame(self.control, {"missing": missing + self.expected})

    def loop(self) -> None:
        while os.getppid() == self.config["parent"]:
            now = time.monotonic()
            for child in list(self.children.values()):
                if child.started + self.config["timeout"] <= now:
                    self._finish(child, "timeout")
            while self.queue and len(self.children) < self.config["workers"]:
                self._start(*self.queue.popleft())
            self.removing -= {pid for pid in self.removing if os.waitpid(pid, os.WNOHANG)[0]}
            ends = [child.started + self.config["timeout"] for child in self.children.values()]
            # At least once a second, to see that the parent lives: a copy of its socket may outlive it.
            for key, _ in self.selector.select(max(0.0, min([1.0, *(end - now for end in ends)]))):
                if key.data(key.fd) is False:
                    return

    def end(self) -> None:
        for child in list(self.children.values()):
            self._reap(child)
        for pid in self.removing:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        _remove_tree(self.config["scratch"])

    def _on_control(self, fd: int) -> bool:
        data = self.control.recv(1 << 18)
        self.received += data
        while len(self.received) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.received)[0]
            if len(self.received) < end:
                break
            message = json.loads(self.received[_LENGTH.size : end])
            del self.received[:end]
            if "cancel" not in message:
                self.queue.append((message["id"], message["request"]))
                continue
            self.queue = collections.deque(item for item in self.queue if item[0] != message["cancel"])
            for child in list(self.children.values()):
                if child.number == message["cancel"]:
                    self._reap(child)
        return bool(data)

    def _start(self, number: int, request: dict[str, Any]) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        scratch = os.path.join(self.config["scratch"], f"{number}-{nonce.hex()}")
        os.mkdir(scratch, 0o700)
        (reply, reply_end), (output, output_end) = os.pipe(), os.pipe()
        started = time.monotonic()
        try:
            pid = os.fork()
        except OSError as error:
            for fd in (reply, reply_end, output, output_end):
                os.close(fd)
            os.rmdir(scratch)
            event = {"id": number, "how": "failed", "message": f"no new process: {error.strerror}"}
            _write_frame(self.control, event | {"status": 0, "seconds": 0.0, "output": ""})
            return
        if pid == 0:
            self._be_child(request, reply_end, output_end, scratch, nonce)
        os.close(reply_end)
        os.close(output_end)
        child = _Child(number, pid, reply, output, scratch, nonce, started)
        self.children[pid] = child
        for fd, action in ((reply, self._on_reply), (output, self._on_output)):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, functools.partial(self._on_child, child, action))

    def _on_child(self, child: _Child, action: Callable[[_Child], None], fd: int) -> None:
        if child.pid in self.children:  # else it was reaped earlier in the same round
            action(child)

    def _be_child(
        self, request: dict[str, Any], reply_fd: int, output_fd: int, scratch: str, nonce: bytes
    ) -> NoReturn:
        """The child: confine, work, reply, and never return into the server's code."""
        try:
            null = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
                os.dup2(source, target)
            os.closerange(3, reply_fd)
            os.closerange(reply_fd + 1, 1 << 16)
            try:
                new = set(_confine(self.config, self.readable, scratch)) - set(self.expected)
                if new:
                    raise RuntimeError(f"not confined: {'; '.join(sorted(new))}")
                body = json.dumps({"kind": "ok", "result": self.handle(request)}).encode()
                if len(body) > MAX_REPLY:
                    raise ValueError(f"the reply has {len(body)} bytes, the limit is {MAX_REPLY}")
            except BaseException as error:  # noqa: BLE001  SystemExit too: the exception is the reply
                message = _message(error)
                full = isinstance(error, MemoryError) or "can't allocate memory" in message
                kind = "out_of_memory" if full else "error"
                body = json.dumps({"kind": kind, "type": type(error).__name__, "message": message}).encode()
            frame = memoryview(nonce + _LENGTH.pack(len(body)) + body)
            while frame:
                frame = frame[os.write(reply_fd, frame) :]
        finally:
            os._exit(1)

    def _on_reply(self, child: _Child) -> None:
        data = os.read(child.reply, 1 << 20)
        child.data += data
        head = _NONCE_BYTES + _LENGTH.size
        if len(child.data) >= head:
            size = _LENGTH.unpack_from(child.data, _NONCE_BYTES)[0]
            if child.data[:_NONCE_BYTES] != child.nonce or size > MAX_REPLY:
                self._finish(child, "torn")
            elif len(child.data) >= head + size:
                self._finish(child, "reply", bytes(child.data[head : head + size]))
        if not data and child.pid in self.children:
            self._finish(child, "torn" if child.data else "ended")

    def _on_output(self, child: _Child) -> None:
        data = os.read(child.output, 1 << 16)
        if not data:
            self.selector.unregister(child.output)
        child.printed = (child.printed + data)[-MAX_OUTPUT:]

    def _finish(self, child: _Child, how: str, body: bytes = b"") -> None:
        status, trouble = self._reap(child)
        event = {
            "id": child.number,
            "how": how,
            "status": status,
            "seconds": time.monotonic() - child.started,
            "output": child.printed.decode("utf-8", "replace") + trouble,
        }
        _write_frame(self.control, event, body)

    def _reap(self, child: _Child) -> tuple[int, str]:
        """Kill the child and all of its group, and leave nothing of it."""
        del self.children[child.pid]
        for kill in (os.killpg, os.kill):  # both: it may not have come to setsid yet
            with contextlib.suppress(ProcessLookupError):
                kill(child.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        with contextlib.suppress(BlockingIOError):
            while data := os.read(child.output, 1 << 16):
                child.printed = (child.printed + data)[-MAX_OUTPUT:]
        for fd in (child.reply, child.output):
            with contextlib.suppress(KeyError):
                self.selector.unregister(fd)
            os.close(fd)
        try:
            if not _remove_tree(child.scratch, budget=0.05):
                self._remove_aside(child.scratch)
        except OSError as error:
            return status, f"\n(its scratch folder is left: {error})"
        return status, ""

    def _remove_aside(self, folder: str) -> None:
        """Have a process of its own remove a folder with very much in it, for other requests are waiting."""
        pid = os.fork()
        if pid == 0:
            try:
                _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                os.closerange(3, 1 << 16)
                _remove_tree(folder)
            finally:
                os._exit(0)
        self.removing.add(pid)


def _write_frame(control: socket.socket, event: dict[str, Any], body: bytes = b"") -> None:
    frame = json.dumps(event).encode() + b"\n" + body
    control.sendall(_LENGTH.pack(len(frame)) + frame)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  a stranger's __str__ may raise anything
        text = f"(no message: its __str__ raised {type(unprintable).__name__})"
    return " ".join(text.split())[:2000].encode("utf-8", "replace").decode()


def _remove_tree(top: str, budget: float = float("inf")) -> bool:
    """Remove a folder that a stranger filled: of any depth (no recursion, no long path) and any mode.

    False when more than `budget` seconds have gone and something is left.
    """
    end = time.monotonic() + budget
    names = (os.path.join(top, f"{secrets.token_hex(8)}-{n}") for n in itertools.count())
    while folders := list(_unlink_files(top)):
        for folder in folders:
            for inner in _unlink_files(folder):
                os.rename(inner, next(names))
                if time.monotonic() > end:
                    return False
            os.rmdir(folder)
    os.rmdir(top)
    return True


def _unlink_files(folder: str) -> Iterator[str]:
    """Remove the files of a folder, and give its folders, open to us."""
    os.chmod(folder, 0o700)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                yield entry.path
            else:
                os.unlink(entry.path)


# ------------------------------------------------------------------------------------- what a child gives up

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_THREAD = 0x10000000, 0x40000000, 0x00010000
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


def _call(function: str, *arguments: Any) -> int:
    """A libc call, its integers as longs; raises OSError."""
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = getattr(_libc, function)(*values)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _leave_network() -> list[str]:
    """Move this process, still without threads, to a network namespace with nothing in it."""
    uid, gid = os.getuid(), os.getgid()
    try:
        try:
            _call("unshare", _CLONE_NEWNET)
        except OSError:
            _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    except OSError as error:
        return [f"network namespace: {error.strerror}"]
    return []


def _confine(config: dict[str, Any], readable: list[str], scratch: str) -> list[str]:
    """Give up everything a child does not need; names what could not be given up."""
    os.setsid()
    os.chdir(scratch)
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    tempfile.tempdir = scratch
    steps: list[tuple[str, Callable[[], object]]] = [
        ("end with the server", lambda: _end_with(config["server"])),
        # Where memory runs out, let the kernel take this process and not the user's.
        ("first to go without memory", lambda: Path("/proc/self/oom_score_adj").write_text("1000")),
        ("resource limits", lambda: _limit_resources(config)),
        ("no new privileges", lambda: _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
        ("landlock", lambda: _restrict_files(readable, scratch)),
        ("capabilities", lambda: _drop_capabilities()),
        ("seccomp", lambda: _filter_system_calls()),
    ]
    missing = []
    for name, step in steps:
        try:
            step()
        except OSError as error:
            missing.append(f"{name}: {error.strerror}")
            if name == "seccomp":  # the next best: no thread either, and no bound on root
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return missing


def _end_with(server: int) -> None:
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)  # it died before the line above


def _limit_resources(config: dict[str, Any]) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    seconds = int(config["timeout"]) + 1
    for which, limit in (
        (resource.RLIMIT_CPU, seconds),
        # On top of what is mapped already: a CUDA build of torch maps gigabytes that nobody touches.
        (resource.RLIMIT_AS, pages * resource.getpagesize() + (config["memory_mb"] << 20)),
        (resource.RLIMIT_FSIZE, 64 << 20),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        # The soft limit on time sends SIGXCPU, which tells it from a plain kill; the hard one is certain.
        soft, hard = limit, limit + (which == resource.RLIMIT_CPU)
        allowed = resource.getrlimit(which)[1]
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(which, (soft, hard))


def _drop_capabilities() -> None:
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _call("capset", ctypes.c_char_p(header), ctypes.c_char_p(nothing))


def _readable_paths() -> list[str]:
    """What a child may read: Python, the packages, the system's libraries. Not a folder above them."""
    paths = sysconfig.get_paths()
    found = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found += [os.path.join(prefix, "lib") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    found += [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    found += ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store"]
    found += [
        "/usr/share/zoneinfo",
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/etc/passwd",
        "/etc/nsswitch.conf",
    ]
    found += ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"]
    found += ["/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"]
    found.append(os.path.dirname(os.path.realpath(__file__)))
    # What was imported from elsewhere (a PYTHONPATH) by package, for that folder may hold anything.
    for name, module in list(sys.modules.items()):
        if "." not in name:
            inner = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
            found += [p for p in inner if isinstance(p, str)]
    real = sorted({os.path.realpath(p) for p in found if os.path.exists(p)})
    kept: list[str] = []
    for path in real:
        if path != "/" and not any(path.startswith(f"{k}/") for k in kept):
            kept.append(path)
    return kept


def _restrict_files(readable: list[str], scratch: str) -> None:
    """landlock(7): rights are bits, in the order of the kernel's header; more of them in every version."""
    create, add, restrict = 444, 445, 446  # the same on every architecture
    try:
        version = _call("syscall", create, None, 0, 1)
    except OSError as error:
        problem = f"{error.strerror}: every file of the user can be read and written"
        raise OSError(error.errno, problem) from None
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    execute, write, read, read_folder, truncate = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
    make_char, make_socket, make_block = 1 << 6, 1 << 9, 1 << 11
    handled = (1 << rights) - 1
    # Next to files: no TCP (4 and newer); no signal and no abstract socket out of here (6 and newer).
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call("syscall", create, ctypes.c_char_p(attributes), len(attributes), 0)
    everything = handled & ~(execute | make_char | make_socket | make_block)
    try:
        for path in [*readable, scratch]:
            allowed = everything if path == scratch else read | read_folder
            if path == "/dev/null":
                allowed |= write | (truncate & handled)
            if not os.path.isdir(path):
                allowed &= ~read_folder
            beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                rule = struct.pack("=Qi", allowed, beneath)
                _call("syscall", add, ruleset, 1, ctypes.c_char_p(rule), 0)
            finally:
                os.close(beneath)
        _call("syscall", restrict, ruleset, 0)
    finally:
        os.close(ruleset)
    if version < 3:
        raise OSError(errno.ENOSYS, f"version {version} lets any file of the user be truncated")


# Numbers of the system calls refused, on x86_64 and aarch64. None: it does not exist there.
_REFUSED: tuple[tuple[int | None, int | None], ...] = (
    (57, None), (58, None),  # fork, vfork
    (59, 221), (322, 281),  # execve, execveat
    (200, 130), (424, 424), (434, 434), (438, 438),  # tkill, pidfd_send_signal, pidfd_open, pidfd_getfd
    (41, 198), (425, 425),  # socket, io_uring_setup
    (101, 117), (310, 270), (311, 271), (440, 440), (312, 272),  # ptrace, process_vm_*, process_madvise, kcmp
    (141, 140), (251, 30), (144, 119), (142, 118), (314, 274),  # setpriority, ioprio_set, sched_set*
    # chmod, chown, utime and xattr in all their forms: landlock does not know them.
    (90, None), (91, 52), (268, 53), (452, 452), (92, None), (94, None), (93, 55), (260, 54),
    (132, None), (235, None), (280, 88), (261, None), (188, 5), (189, 6), (190, 7), (197, 14), (198, 15),
    (199, 16), (463, 463), (466, 466), (469, 469),
    (29, 194), (68, 186), (64, 190), (240, 180), (319, 279),  # shmget, msgget, semget, mq_open, memfd_create
    (165, 40), (166, 39), (272, 97), (308, 268),  # mount, umount2, unshare, setns
    (250, 219), (248, 217), (249, 218),  # keyctl, add_key, request_key
    (321, 280), (298, 241), (323, 282), (304, 265),  # bpf, perf_event_open, userfaultfd, open_by_handle_at
)  # fmt: skip
# Allowed on the process itself only: kill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, prlimit64, setaffinity.
_OWN = ((62, 129), (234, 131), (129, 138), (297, 240), (302, 261), (203, 122))
_CLONE, _CLONE3 = (56, 220), (435, 435)
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _filter_system_calls() -> None:
    """seccomp(2), by a program for the kernel's packet filter: what is not refused below is allowed."""
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"unknown machine {machine}: processes and sockets are not refused")
    column, architecture = _ARCHITECTURES[machine]
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse, absent = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    # Each step: code, how many to jump over if true, if false, operand. Offsets: 0 number, 4 machine, 16 argument.
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, kill)]  # x86's second set of numbers
    for numbers in _REFUSED:
        if (number := numbers[column]) is not None:
            steps += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    steps += [(equal, 0, 1, _CLONE3[column]), (answer, 0, 0, absent)]  # libc then turns to clone
    steps += [(equal, 0, 4, _CLONE[column]), (load, 0, 0, 16), (any_bit, 0, 1, _CLONE_THREAD)]
    steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    for own in _OWN:
        steps += [(equal, 0, 5, own[column]), (load, 0, 0, 16), (equal, 1, 0, 0), (equal, 0, 1, os.getpid())]
        steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    steps.append((answer, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = struct.pack("@HP", len(steps), ctypes.addressof(program))
    _call("prctl", _PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0)
