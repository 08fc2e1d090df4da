"""The server, which forks a child a request, and the child.

The server trusts the parent and its worker module. It believes nothing of a child but a reply behind the
nonce that it gave it, and it outlives no parent.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import gc
import importlib
import itertools
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kernelmill.isolate.confine import SCRATCH_LIMIT, confine, end_with, leave_network, readable_paths
from kernelmill.isolate.scratch import bytes_written, holds_too_much, remove_tree
from kernelmill.isolate.wire import (
    LENGTH,
    MAX_OUTPUT,
    MAX_REPLY,
    MAX_SCRATCH,
    MAX_SCRATCH_FILES,
    TOO_MUCH,
    Config,
    pack,
    take_frames,
)

_NONCE_BYTES = 16
_WATCH_SECONDS = 0.2
_Handle = Callable[..., dict[str, Any]]
_Companion = Callable[[socket.socket], None]


@dataclass
class _Process:
    pid: int
    scratch: str


@dataclass
class _Child:
    number: int
    pid: int
    reply: int
    output: int
    scratch: str
    nonce: bytes
    started: float
    companions: list[_Process]
    data: bytearray = field(default_factory=bytearray)
    printed: bytes = b""


def serve(config: Config) -> None:
    """The server: import the worker, say what is missing, then fork a child a request until the parent ends."""
    control = socket.socket(fileno=config["fd"])
    missing = leave_network()
    try:
        worker = importlib.import_module(config["worker"])
        prepare: Callable[[], None] | None = getattr(worker, "prepare", None)
        if prepare is not None:
            prepare()
        handle: _Handle = getattr(worker, "handle", lambda request: request)
        companion: _Companion | None = getattr(worker, "companion", None)
        inherits: Callable[[], list[int]] = getattr(worker, "inherits", list)
        readable: Callable[[], list[str]] = getattr(worker, "readable", list)
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent is to say it
        _write_frame(control, {"failed": f"{type(error).__name__}: {_message(error)}"})
        return
    # What is here now lives as long as the server: keep the collector from copying its pages in every child.
    gc.collect()
    gc.freeze()
    server = _Server(config, control, handle, companion, inherits(), readable())
    try:
        server.probe(missing)
        server.loop()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        server.end()


class _Server:
    def __init__(
        self,
        config: Config,
        control: socket.socket,
        handle: _Handle,
        companion: _Companion | None,
        inherited: list[int],
        readable: list[str],
    ) -> None:
        self.config = config
        self.control = control
        self.handle = handle
        self.companion = companion
        self.inherited = inherited
        """Descriptors of the worker's that a child keeps and its companions do not."""
        self.expected: list[str] = []
        self.watching = False
        """Whether children write to the disk, so that how much they write must be watched."""
        self.watched = 0.0
        self.pid = os.getpid()
        self.readable = readable_paths() + readable
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
                os.write(write, json.dumps(self._confine(scratch)).encode())
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
        lacking = [line for line in self.expected if not line.startswith(SCRATCH_LIMIT)]
        self.watching = lacking != self.expected
        _write_frame(self.control, {"missing": missing + lacking})

    def loop(self) -> None:
        while os.getppid() == self.config["parent"]:
            now = time.monotonic()
            for child in list(self.children.values()):
                if child.started + self.config["timeout"] <= now:
                    self._finish(child, "timeout")
            if self.watching and now >= self.watched + _WATCH_SECONDS:
                self._watch()
                self.watched = time.monotonic()
            while self.queue and len(self.children) < self.config["workers"]:
                self._start(*self.queue.popleft())
            self.removing -= {pid for pid in self.removing if os.waitpid(pid, os.WNOHANG)[0]}
            ends = [child.started + self.config["timeout"] for child in self.children.values()]
            # At least once a second, to see that the parent lives: a copy of its socket may outlive it.
            longest = _WATCH_SECONDS if self.watching and self.children else 1.0
            for key, _ in self.selector.select(max(0.0, min([longest, *(end - now for end in ends)]))):
                if key.data(key.fd) is False:
                    return

    def _watch(self) -> None:
        for child in list(self.children.values()):
            everybody = [_Process(child.pid, child.scratch), *child.companions]
            if any(
                bytes_written(process.pid) > MAX_SCRATCH
                or holds_too_much(process.scratch, MAX_SCRATCH, MAX_SCRATCH_FILES)
                for process in everybody
            ):
                self._finish(child, "wrote")

    def end(self) -> None:
        for child in list(self.children.values()):
            self._reap(child)
        for pid in self.removing:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        remove_tree(self.config["scratch"])

    def _confine(self, scratch: str) -> list[str]:
        config = self.config
        return confine(
            scratch,
            self.readable,
            self.pid,
            config["timeout"],
            config["memory_mb"],
            config["programs"],
            config["gpu"],
        )

    def _on_control(self, fd: int) -> bool:
        data = self.control.recv(1 << 18)
        self.received += data
        for frame in take_frames(self.received):
            message = json.loads(frame)
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
        (reply, reply_end), (output, output_end) = os.pipe(), os.pipe()
        pairs = [socket.socketpair() for _ in range(self.config["companions"])]
        started = time.monotonic()
        processes: list[_Process] = []
        try:
            ours = [mine for mine, _ in pairs]
            be_child = functools.partial(self._be_child, request, reply_end, output_end, nonce, ours)
            processes.append(self._fork(number, be_child))
            for _, theirs in pairs:
                processes.append(
                    self._fork(number, functools.partial(self._be_companion, output_end, theirs))
                )
        except OSError as error:
            for process in processes:
                self._end(process)
            os.close(reply)
            os.close(output)
            event = {"id": number, "how": "failed", "message": f"no new process: {error.strerror}"}
            _write_frame(self.control, event | {"status": 0, "seconds": 0.0, "output": ""})
            return
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()
            os.close(reply_end)
            os.close(output_end)
        pid, scratch = processes[0].pid, processes[0].scratch
        child = _Child(number, pid, reply, output, scratch, nonce, started, processes[1:])
        self.children[pid] = child
        for fd, action in ((reply, self._on_reply), (output, self._on_output)):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, functools.partial(self._on_child, child, action))

    def _on_child(self, child: _Child, action: Callable[[_Child], None], fd: int) -> None:
        if child.pid in self.children:  # else it was reaped earlier in the same round
            action(child)

    def _fork(self, number: int, be: Callable[[str], NoReturn]) -> _Process:
        """A new process with a scratch folder of its own, which is `be`'s argument."""
        scratch = os.path.join(self.config["scratch"], f"{number}-{secrets.token_hex(16)}")
        os.mkdir(scratch, 0o700)
        try:
            pid = os.fork()
        except OSError:
            os.rmdir(scratch)
            raise
        if pid == 0:
            try:
                be(scratch)
            finally:
                os._exit(1)
        return _Process(pid, scratch)

    def _enter(self, scratch: str, output_fd: int, keep: list[int]) -> None:
        """In a new process: give up every file but these, and what `confine` takes."""
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
            os.dup2(source, target)
        edges = [2, *sorted(keep), 1 << 16]
        for low, high in itertools.pairwise(edges):
            os.closerange(low + 1, high)
        new = set(self._confine(scratch)) - set(self.expected)
        if new:
            raise RuntimeError(f"not confined: {'; '.join(sorted(new))}")

    def _be_companion(self, output_fd: int, theirs: socket.socket, scratch: str) -> NoReturn:
        """A companion: confine, and talk to the child alone."""
        try:
            self._enter(scratch, output_fd, [theirs.fileno()])
            assert self.companion is not None, "the worker has no function companion"
            self.companion(theirs)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            raise
        finally:
            os._exit(1)

    def _be_child(
        self,
        request: dict[str, Any],
        reply_fd: int,
        output_fd: int,
        nonce: bytes,
        companions: list[socket.socket],
        scratch: str,
    ) -> NoReturn:
        """The child: confine, work, reply, and never return into the server's code."""
        try:
            try:
                kept = [reply_fd, *self.inherited, *(end.fileno() for end in companions)]
                self._enter(scratch, output_fd, kept)
                result = self.handle(request, companions) if companions else self.handle(request)
                body = json.dumps({"kind": "ok", "result": result}).encode()
                if len(body) > MAX_REPLY:
                    raise ValueError(f"the reply has {len(body)} bytes, the limit is {MAX_REPLY}")
            except BaseException as error:  # noqa: BLE001  SystemExit too: the exception is the reply
                message = _message(error)
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    message = TOO_MUCH
                full = isinstance(error, MemoryError) or "can't allocate memory" in message
                kind = "out_of_memory" if full else "error"
                body = json.dumps({"kind": kind, "type": type(error).__name__, "message": message}).encode()
            frame = memoryview(nonce + pack(body))
            while frame:
                frame = frame[os.write(reply_fd, frame) :]
        finally:
            os._exit(1)

    def _on_reply(self, child: _Child) -> None:
        data = os.read(child.reply, 1 << 20)
        child.data += data
        head = _NONCE_BYTES + LENGTH.size
        if len(child.data) >= head:
            size = LENGTH.unpack_from(child.data, _NONCE_BYTES)[0]
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
        status, ends, trouble = self._reap(child)
        event = {
            "id": child.number,
            "how": how,
            "status": status,
            "seconds": time.monotonic() - child.started,
            "output": child.printed.decode("utf-8", "replace") + trouble,
            "companions": ends,
        }
        _write_frame(self.control, event, body)

    def _reap(self, child: _Child) -> tuple[int, list[int], str]:
        """End the child and its companions, and leave nothing of them. Gives how each ended."""
        del self.children[child.pid]
        everybody = [_Process(child.pid, child.scratch), *child.companions]
        ended = [self._end(process) for process in everybody]
        with contextlib.suppress(BlockingIOError):
            while data := os.read(child.output, 1 << 16):
                child.printed = (child.printed + data)[-MAX_OUTPUT:]
        for fd in (child.reply, child.output):
            with contextlib.suppress(KeyError):
                self.selector.unregister(fd)
            os.close(fd)
        statuses = [status for status, _ in ended]
        return statuses[0], statuses[1:], "".join(trouble for _, trouble in ended)

    def _end(self, process: _Process) -> tuple[int, str]:
        """Kill a process and all of its group, and remove its scratch folder."""
        for kill in (os.killpg, os.kill):  # both: it may not have come to setsid yet
            with contextlib.suppress(ProcessLookupError):
                kill(process.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        try:
            if not remove_tree(process.scratch, budget=0.05):
                self._remove_aside(process.scratch)
        except OSError as error:
            return status, f"\n(its scratch folder is left: {error})"
        return status, ""

    def _remove_aside(self, folder: str) -> None:
        """Have a process of its own remove a folder with very much in it, for other requests are waiting."""
        pid = os.fork()
        if pid == 0:
            try:
                end_with(self.pid)
                os.closerange(3, 1 << 16)
                remove_tree(folder)
            finally:
                os._exit(0)
        self.removing.add(pid)


def _write_frame(control: socket.socket, event: dict[str, Any], body: bytes = b"") -> None:
    control.sendall(pack(json.dumps(event).encode() + b"\n" + body))


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  a stranger's __str__ may raise anything
        text = f"(no message: its __str__ raised {type(unprintable).__name__})"
    return " ".join(text.split())[:2000].encode("utf-8", "replace").decode()
