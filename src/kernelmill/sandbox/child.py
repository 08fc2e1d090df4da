"""The code of a process that the server has forked: drop privileges, do the work, reply.

A child serves requests that arrive over its own socket. A companion talks only to its child.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

from kernelmill.sandbox import inside
from kernelmill.sandbox.confine import confine, readable_paths
from kernelmill.sandbox.own_time import OwnTime
from kernelmill.sandbox.wire import MAX_REPLY, TOO_MUCH, Config, pack

NONCE_BYTES = 16
AGAIN, LAST = b"+", b"."
"""The byte after a reply's nonce: whether the child takes another request."""
HEAD_BYTES = NONCE_BYTES + 1


class Worker:
    """The worker module's functions, and how to confine a process that runs them."""

    def __init__(self, config: Config, module: ModuleType) -> None:
        self.config = config
        self._handle: Callable[..., dict[str, Any]] = getattr(module, "handle", lambda request: request)
        self._companion: Callable[[socket.socket], None] | None = getattr(module, "companion", None)
        self._reusable: Callable[[], bool] = getattr(module, "reusable", lambda: True)
        self._readable: list[str] = readable_paths() + getattr(module, "readable", list)()
        self._server = os.getpid()
        self.expected: list[str] = []
        """The protections this machine is known not to support."""

    def confine(self, scratch: str, requests: int) -> list[str]:
        config = self.config
        return confine(
            scratch,
            self._readable,
            self._server,
            config["timeout"] * requests,
            config["memory_mb"],
            config["programs"],
            config["gpu"],
        )

    def probe(self, scratch: str) -> tuple[int, list[str]]:
        """Try every protection in a new process.

        Returns its exit status, and the protections that failed. These are `expected` to fail from now on.
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.write(write, json.dumps(self.confine(scratch, 1)).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        with os.fdopen(read, "rb") as stream:
            answer = stream.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if status == 0:
            self.expected = json.loads(answer)
        return status, self.expected

    def be_companion(self, output_fd: int, theirs: socket.socket, scratch: str) -> NoReturn:
        """Run as a companion: drop privileges, then talk to the child only."""
        try:
            self._enter(scratch, output_fd, [theirs.fileno()], None)
            assert self._companion is not None, "the worker has no function companion"
            self._companion(theirs)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            raise
        finally:
            os._exit(1)

    def be_child(self, tasks: socket.socket, reply_fd: int, output_fd: int, scratch: str) -> NoReturn:
        """Run as a child: drop privileges, then serve requests up to the limit.

        Never returns to the server's code.
        """
        try:
            kept, most = [reply_fd, tasks.fileno()], self.config["reuse"]
            trouble: BaseException | None = None
            try:
                self._enter(scratch, output_fd, kept, tasks, most)
            except BaseException as error:  # noqa: BLE001  it becomes the reply to the first request
                trouble = error
            for served in range(1, most + 1):
                nonce, request, companions, clocks = _take_over(tasks, self.config["companions"])
                inside.companions = clocks
                try:
                    if trouble is not None:
                        raise trouble
                    result = self._handle(request, companions) if companions else self._handle(request)
                    body = json.dumps({"kind": "ok", "result": result}).encode()
                    if len(body) > MAX_REPLY:
                        raise ValueError(f"the reply has {len(body)} bytes, the limit is {MAX_REPLY}")
                    again = served < most and self._reusable()
                except BaseException as error:  # noqa: BLE001  also SystemExit: the exception is the reply
                    again, body = False, _trouble(error)
                for end in companions:
                    end.close()
                for clock in clocks:
                    clock.close()
                frame = memoryview(nonce + (AGAIN if again else LAST) + pack(body))
                while frame:
                    frame = frame[os.write(reply_fd, frame) :]
                if not again:
                    break
        finally:
            os._exit(1)

    def _enter(
        self, scratch: str, output_fd: int, keep: list[int], line: socket.socket | None, requests: int = 1
    ) -> None:
        """In a new process: close all files except these, and confine it."""
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (output_fd, 1), (output_fd, 2)):
            os.dup2(source, target)
        edges = [2, *sorted(keep), 1 << 16]
        for low, high in itertools.pairwise(edges):
            os.closerange(low + 1, high)
        inside.enter(line)
        new = set(self.confine(scratch, requests)) - set(self.expected)
        if new:
            raise RuntimeError(f"not confined: {'; '.join(sorted(new))}")


def hand_over(
    tasks: socket.socket,
    nonce: bytes,
    request: dict[str, Any],
    sockets: list[socket.socket],
    clocks: list[OwnTime],
) -> None:
    """Send a child its next request.

    The request is passed as a memfd, so a child that does not read blocks nobody.
    """
    with open(os.memfd_create("request"), "wb") as file:
        file.write(json.dumps(request | {"clocks": [len(clock.fds) for clock in clocks]}).encode())
        file.flush()
        file.seek(0)
        fds = [
            file.fileno(),
            *(end.fileno() for end in sockets),
            *(fd for clock in clocks for fd in clock.fds),
        ]
        socket.send_fds(tasks, [nonce], fds, socket.MSG_DONTWAIT)


def _take_over(
    tasks: socket.socket, companions: int
) -> tuple[bytes, dict[str, Any], list[socket.socket], list[OwnTime]]:
    """In a child: wait for a request.

    Returns the nonce, the request, and each companion's socket and clock.
    """
    nonce, fds, _, _ = socket.recv_fds(tasks, NONCE_BYTES, 1 + 3 * companions)
    if not fds:
        os._exit(1)  # the server is gone
    with open(fds[0], "rb") as file:
        request = json.load(file)
    sockets, rest = [socket.socket(fileno=fd) for fd in fds[1 : 1 + companions]], fds[1 + companions :]
    clocks = []
    for count in request.pop("clocks"):
        clocks.append(OwnTime(rest[:count]))
        rest = rest[count:]
    return nonce, request, sockets, clocks


def _trouble(error: BaseException) -> bytes:
    """Encode an exception as a reply."""
    message = message_of(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        message = TOO_MUCH
    full = isinstance(error, MemoryError) or "can't allocate memory" in message
    kind = "out_of_memory" if full else "error"
    return json.dumps({"kind": kind, "type": type(error).__name__, "message": message}).encode()


def message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as unprintable:  # noqa: BLE001  an untrusted __str__ may raise anything
        text = f"(no message: its __str__ raised {type(unprintable).__name__})"
    return " ".join(text.split())[:2000].encode("utf-8", "replace").decode()
