"""The server, which forks children and hands them requests.

The server trusts the parent and its worker module. It believes nothing of a child but a reply behind the
nonce that it gave it, and it outlives no parent.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from kernelmill.isolate.child import AGAIN, HEAD_BYTES, NONCE_BYTES, Worker, hand_over, message_of
from kernelmill.isolate.confine import SCRATCH_LIMIT, leave_network
from kernelmill.isolate.ending import Endings, Process
from kernelmill.isolate.scratch import bytes_written, holds_too_much, remove_tree
from kernelmill.isolate.wire import (
    LENGTH,
    MAX_OUTPUT,
    MAX_REPLY,
    MAX_SCRATCH,
    MAX_SCRATCH_FILES,
    Config,
    pack,
    take_frames,
)

_WATCH_SECONDS = 0.2
_POLL_SECONDS = 0.002


@dataclass
class _Request:
    """One request in a child's hands."""

    number: int
    nonce: bytes
    started: float
    companions: list[Process]


@dataclass
class _Child:
    pid: int
    scratch: str
    tasks: socket.socket
    """Our end of what it gets its requests by."""
    reply: int
    output: int
    output_end: int
    """Open as long as the child lives: the companions of its next request print to it, too."""
    request: _Request | None = None
    served: int = 0
    data: bytearray = field(default_factory=bytearray)
    printed: bytes = b""


def serve(config: Config) -> None:
    """The server: import the worker, say what is missing, then fork a child a request until the parent ends."""
    control = socket.socket(fileno=config["fd"])
    missing = leave_network()
    try:
        module = importlib.import_module(config["worker"])
        prepare: Callable[[], None] | None = getattr(module, "prepare", None)
        if prepare is not None:
            prepare()
        worker = Worker(config, module)
    except BaseException as error:  # noqa: BLE001  whatever it is, the parent is to say it
        _write_frame(control, {"failed": f"{type(error).__name__}: {message_of(error)}"})
        return
    # What is here now lives as long as the server: keep the collector from copying its pages in every child.
    gc.collect()
    gc.freeze()
    server = _Server(config, control, worker)
    try:
        server.probe(missing)
        server.loop()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        server.end()


class _Server:
    def __init__(self, config: Config, control: socket.socket, worker: Worker) -> None:
        self.config, self.control, self.worker = config, control, worker
        self.watching = False
        """Whether children write to the disk, so that how much they write must be watched."""
        self.watched = 0.0
        self.children: dict[int, _Child] = {}
        self.queue: collections.deque[tuple[int, dict[str, Any]]] = collections.deque()
        self.endings = Endings()
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
                os.write(write, json.dumps(self.worker.confine(scratch, 1)).encode())
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
        expected = self.worker.expected = json.loads(answer)
        lacking = [line for line in expected if not line.startswith(SCRATCH_LIMIT)]
        self.watching = lacking != expected
        _write_frame(self.control, {"missing": missing + lacking})

    def loop(self) -> None:
        while os.getppid() == self.config["parent"]:
            now = time.monotonic()
            busy = [(child, child.request) for child in self.children.values() if child.request is not None]
            for child, request in busy:
                if request.started + self.config["timeout"] <= now:
                    self._finish(child, request, "timeout")
            if self.watching and now >= self.watched + _WATCH_SECONDS:
                self._watch()
                self.watched = time.monotonic()
            while self.queue and self._busy() < self.config["workers"]:
                self._start(*self.queue.popleft())
            self.endings.look()
            ends = [
                child.request.started + self.config["timeout"]
                for child in self.children.values()
                if child.request is not None
            ]
            # At least once a second, to see that the parent lives: a copy of its socket may outlive it.
            longest = _WATCH_SECONDS if self.watching and self.children else 1.0
            longest = _POLL_SECONDS if self.endings.busy else longest
            for key, _ in self.selector.select(max(0.0, min([longest, *(end - now for end in ends)]))):
                if key.data(key.fd) is False:
                    return

    def _busy(self) -> int:
        return sum(child.request is not None for child in self.children.values())

    def _watch(self) -> None:
        for child in list(self.children.values()):
            if child.request is not None and any(
                bytes_written(process.pid) > MAX_SCRATCH
                or holds_too_much(process.scratch, MAX_SCRATCH, MAX_SCRATCH_FILES)
                for process in _everybody(child)
            ):
                self._finish(child, child.request, "wrote")

    def end(self) -> None:
        for child in list(self.children.values()):
            self._let_go(child)
        self.endings.close()
        remove_tree(self.config["scratch"])

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
                if child.request is not None and child.request.number == message["cancel"]:
                    self._let_go(child)
        return bool(data)

    def _start(self, number: int, request: dict[str, Any]) -> None:
        """Give a request to a child that waits for one, or to a new one."""
        pairs = [socket.socketpair() for _ in range(self.config["companions"])]
        companions: list[Process] = []
        child: _Child | None = None
        try:
            child = next((one for one in self.children.values() if one.request is None), None)
            child = child or self._new_child()
            for _, theirs in pairs:
                be = functools.partial(self.worker.be_companion, child.output_end, theirs)
                companions.append(self._fork(be))
            nonce = secrets.token_bytes(NONCE_BYTES)
            child.request = _Request(number, nonce, time.monotonic(), companions)
            child.printed, child.served = b"", child.served + 1
            hand_over(child.tasks, nonce, request, [mine for mine, _ in pairs])
        except OSError as error:
            if child is not None:
                child.request = None
                self._let_go(child)
            self.endings.end(companions, lambda statuses, trouble: None)
            event = {"id": number, "how": "failed", "message": f"no new process: {error.strerror}"}
            _write_frame(self.control, event | {"status": 0, "seconds": 0.0, "output": ""})
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()

    def _new_child(self) -> _Child:
        (reply, reply_end), (output, output_end) = os.pipe(), os.pipe()
        ours, theirs = socket.socketpair()
        try:
            process = self._fork(functools.partial(self.worker.be_child, theirs, reply_end, output_end))
        except OSError:
            for fd in (reply, output, output_end):
                os.close(fd)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(reply_end)
        child = _Child(process.pid, process.scratch, ours, reply, output, output_end)
        self.children[child.pid] = child
        for fd, action in ((reply, self._on_reply), (output, self._on_output)):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, functools.partial(self._on_child, child, action))
        return child

    def _on_child(self, child: _Child, action: Callable[[_Child], None], fd: int) -> None:
        if child.pid in self.children:  # else it was reaped earlier in the same round
            action(child)

    def _fork(self, be: Callable[[str], NoReturn]) -> Process:
        """A new process with a scratch folder of its own, which is `be`'s argument."""
        scratch = os.path.join(self.config["scratch"], secrets.token_hex(16))
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
        return Process(pid, scratch)

    def _on_reply(self, child: _Child) -> None:
        data = os.read(child.reply, 1 << 20)
        child.data += data
        head, request = HEAD_BYTES + LENGTH.size, child.request
        if request is None:
            if child.data or not data:  # it speaks unasked, or has ended: nobody waits for it
                self._let_go(child)
            return
        if len(child.data) >= head:
            size = LENGTH.unpack_from(child.data, HEAD_BYTES)[0]
            if child.data[:NONCE_BYTES] != request.nonce or size > MAX_REPLY:
                self._finish(child, request, "torn")
            elif len(child.data) >= head + size:
                again = child.data[NONCE_BYTES:HEAD_BYTES] == AGAIN and len(child.data) == head + size
                body = bytes(child.data[head : head + size])
                child.data.clear()
                self._finish(child, request, "reply", body, again and child.served < self.config["reuse"])
        if not data and child.pid in self.children:
            self._finish(child, request, "torn" if child.data else "ended")

    def _on_output(self, child: _Child) -> None:
        child.printed = (child.printed + os.read(child.output, 1 << 16))[-MAX_OUTPUT:]

    def _finish(
        self, child: _Child, request: _Request, how: str, body: bytes = b"", again: bool = False
    ) -> None:
        """Tell the parent, as soon as the processes that are no longer needed have ended."""
        seconds = time.monotonic() - request.started

        def tell(statuses: list[int], trouble: str, printed: bytes) -> None:
            event = {
                "id": request.number,
                "how": how,
                "status": 0 if again else statuses.pop(0),
                "seconds": seconds,
                "output": printed.decode("utf-8", "replace") + trouble,
                "companions": statuses,
            }
            _write_frame(self.control, event, body)

        if not again:
            self._let_go(child, tell)
            return
        self._drain(child)
        printed, child.request = child.printed, None
        self.endings.end(request.companions, lambda statuses, trouble: tell(statuses, trouble, printed))

    def _let_go(
        self, child: _Child, then: Callable[[list[int], str, bytes], None] = lambda *ignored: None
    ) -> None:
        """End a child and its companions, and leave nothing of them."""
        del self.children[child.pid]
        for fd in (child.reply, child.output):
            self.selector.unregister(fd)

        def close(statuses: list[int], trouble: str) -> None:
            self._drain(child)
            for fd in (child.reply, child.output, child.output_end):
                os.close(fd)
            child.tasks.close()
            then(statuses, trouble, child.printed)

        self.endings.end(_everybody(child), close)

    def _drain(self, child: _Child) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(child.output, 1 << 16):
                child.printed = (child.printed + data)[-MAX_OUTPUT:]


def _everybody(child: _Child) -> list[Process]:
    return [Process(child.pid, child.scratch), *(child.request.companions if child.request else ())]


def _write_frame(control: socket.socket, event: dict[str, Any], body: bytes = b"") -> None:
    control.sendall(pack(json.dumps(event).encode() + b"\n" + body))
