"""The server: fork children and pass them requests.

The server trusts the parent and its worker module. From a child it trusts only a reply behind the nonce that
it gave that child. It ends when its parent ends.

Each request has a limit on its own time (`own_time`), which excludes waiting for the GPU lock
(`gpu_lock`). Holding the lock has a cap. A request over either limit is killed; its draft, if it left one, is
its reply.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import importlib
import json
import math
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from kernelmill.sandbox.child import AGAIN, HEAD_BYTES, NONCE_BYTES, Worker, hand_over, message_of
from kernelmill.sandbox.confine import SCRATCH_LIMIT, leave_network
from kernelmill.sandbox.ending import Endings, Process
from kernelmill.sandbox.gpu_lock import GpuLock
from kernelmill.sandbox.huge_pages import collapse
from kernelmill.sandbox.inside import GO
from kernelmill.sandbox.own_time import OwnTime, counted, processor_time, together
from kernelmill.sandbox.scratch import remove_tree
from kernelmill.sandbox.server_child import Child, Request, fork
from kernelmill.sandbox.wire import (
    LENGTH,
    MAX_REPLY,
    Config,
    take_frames,
    write_frame,
)

_COLLECT_SELDOM = (50_000, 20, 100)
_WATCH_SECONDS = 0.2
_POLL_SECONDS = 0.002
_MORE_COMPANIONS = 4
"""That a child may ask for in a request, besides those that it begins with."""
_MOST_HEARD = 50_000
_TELL_SECONDS = 0.2
"""Minimum interval between status updates to the parent."""
_WALL_CLOCK = "count of the time that a process waits for a processor: limits go by the wall clock"


def serve(config: Config) -> None:
    """Import the worker, report what is missing, then serve requests until the parent ends."""
    control = socket.socket(fileno=config["fd"])
    missing = leave_network()
    try:
        module = importlib.import_module(config["worker"])
        prepare: Callable[[], None] | None = getattr(module, "prepare", None)
        if prepare is not None:
            prepare()
        worker = Worker(config, module)
    except BaseException as error:  # noqa: BLE001  the parent reports it, whatever it is
        write_frame(control, {"failed": f"{type(error).__name__}: {message_of(error)}"})
        return
    prepare_to_fork(config["gpu"])
    server = _Server(config, control, worker)
    try:
        server.probe(missing)
        server.loop()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone
    finally:
        server.end()


def prepare_to_fork(gpu: bool) -> None:
    """Make forks of this process cheap."""
    gc.collect()
    # These objects live as long as the server. Freezing them stops the garbage collector from copying their
    # pages in every child.
    gc.freeze()
    collapse()
    if not gpu:
        # Children are short-lived, and have memory for it. On a GPU, garbage could hold much of the memory.
        gc.set_threshold(*_COLLECT_SELDOM)


class _Server:
    def __init__(self, config: Config, control: socket.socket, worker: Worker) -> None:
        self.config, self.control, self.worker = config, control, worker
        self.watching = False
        """Whether children write to disk, so that the amount must be watched."""
        self.watched = 0.0
        self.children: dict[int, Child] = {}
        self.queue: collections.deque[tuple[int, dict[str, Any], float]] = collections.deque()
        self.endings = Endings()
        self.gpu_lock = GpuLock()
        self.told: tuple[float, list[dict[str, Any]]] = (0.0, [])
        """When the parent was last sent a status update, and its content."""
        self.received = bytearray()
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, self._on_control)

    def probe(self, missing: list[str]) -> None:
        """Try every protection in a child, and report those that failed to the parent."""
        scratch = os.path.join(self.config["scratch"], "probe")
        os.mkdir(scratch, 0o700)
        status, expected = self.worker.probe(scratch)
        os.rmdir(scratch)
        if status != 0:
            write_frame(self.control, {"failed": f"a sandboxed process ended with status {status}"})
            return
        lacking = [line for line in expected if not line.startswith(SCRATCH_LIMIT)]
        self.watching = lacking != expected
        missing += [] if counted() else [_WALL_CLOCK]
        write_frame(self.control, {"missing": missing + lacking})

    def loop(self) -> None:
        while os.getppid() == self.config["parent"]:
            self.endings.look()  # before the lock is granted: ended processes block nobody
            for child in list(self.children.values()):
                if child.request is not None and child.request.look_at <= time.monotonic():
                    self._look_at_time(child, child.request)
            for holder in self.gpu_lock.overdue():
                child = self.children[holder.who]
                assert child.request is not None
                self._finish(child, child.request, "overdue")
            self._grant()
            if self.watching and time.monotonic() >= self.watched + _WATCH_SECONDS:
                self._watch()
                self.watched = time.monotonic()
            while self.queue and self._busy() < self.config["workers"]:
                self._start(*self.queue.popleft())
            self._tell()
            for key, _ in self.selector.select(self._pause()):
                if key.data(key.fd) is False:
                    return

    def _pause(self) -> float:
        """How long the loop may sleep until the next deadline or check."""
        ends = [child.request.look_at for child in self.children.values() if child.request is not None]
        due = self.gpu_lock.next_due()
        ends += [] if due is None else [due]
        # Wake at least once a second to check that the parent is alive: a copy of its socket may outlive it.
        longest = _WATCH_SECONDS if self.watching and self.children else 1.0
        longest = _POLL_SECONDS if self.endings.busy else longest
        return max(0.0, min([longest, *(end - time.monotonic() for end in ends)]))

    def _look_at_time(self, child: Child, request: Request) -> None:
        """Kill the request if its own time is used up; otherwise set when to check again."""
        now = time.monotonic()
        waiting = next((now - one.since for one in self.gpu_lock.waiting if one.who == child.pid), 0.0)
        left = request.timeout - (together(request.clocks) - request.waited - waiting)
        if left <= 0:
            self._finish(child, request, "timeout")
        else:
            request.look_at = now + max(left, _POLL_SECONDS)

    def _grant(self) -> None:
        """Grant the GPU lock, and notify the children that get it."""
        asked = {one.who: one.since for one in self.gpu_lock.waiting}
        for holder in self.gpu_lock.grant():
            child = self.children[holder.who]
            if child.request is not None:
                child.request.waited += holder.since - asked[holder.who]
            with contextlib.suppress(OSError):  # it has ended, which the reply handler will see
                child.tasks.send(GO, socket.MSG_DONTWAIT)

    def _tell(self) -> None:
        """Send the parent a status update for display.

        Times are of the clock that all processes of a machine share.
        """
        when, before = self.told
        if time.monotonic() < when + _TELL_SECONDS:
            return
        waiting = {one.who: one for one in self.gpu_lock.waiting}
        now = []
        for child in self.children.values():
            if child.request is None:
                continue
            lock = self.gpu_lock.holding.get(child.pid) or waiting.get(child.pid)
            now.append(child.request.status(lock, waits=child.pid in waiting))
        self.told = (time.monotonic(), now)
        if now != before:
            write_frame(self.control, {"doing": now})

    def _busy(self) -> int:
        return sum(child.request is not None for child in self.children.values())

    def _watch(self) -> None:
        for child in list(self.children.values()):
            if child.request is not None and child.wrote_too_much():
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
                self.queue.append((message["id"], message["request"], message["timeout"]))
                continue
            self.queue = collections.deque(item for item in self.queue if item[0] != message["cancel"])
            for child in list(self.children.values()):
                if child.request is not None and child.request.number == message["cancel"]:
                    self._let_go(child)
        return bool(data)

    def _start(self, number: int, request: dict[str, Any], timeout: float) -> None:
        """Give a request to an idle child, or to a new one."""
        pairs: list[tuple[socket.socket, socket.socket]] = []
        companions: list[Process] = []
        clocks: list[OwnTime] = []
        child: Child | None = None
        try:
            pairs += [socket.socketpair() for _ in range(self.config["companions"])]
            child = next((one for one in self.children.values() if one.request is None), None)
            child = child or self._new_child()
            for _, theirs in pairs:
                companions.append(self._new_companion(child, theirs))
                clocks.append(OwnTime.of(companions[-1].pid))
            nonce, now = secrets.token_bytes(NONCE_BYTES), time.monotonic()
            marks = [(clock, clock.mark()) for clock in (child.clock, *clocks)]
            child.request = Request(number, nonce, now, timeout, companions, marks, doing=("begins", now))
            child.printed, child.served = b"", child.served + 1
            hand_over(child.tasks, nonce, request, [mine for mine, _ in pairs], clocks)
        except OSError as error:
            if child is not None:
                child.request = None
                self._let_go(child)
            for clock in clocks:
                clock.close()
            self.endings.end(companions, lambda statuses, trouble: None)
            event = {"id": number, "how": "failed", "message": f"no new process: {error.strerror}"}
            write_frame(self.control, event | {"status": 0, "seconds": 0.0, "cpu": 0.0, "output": ""})
        finally:
            for pair in pairs:
                for end in pair:
                    end.close()

    def _new_companion(self, child: Child, theirs: socket.socket) -> Process:
        return fork(
            self.config["scratch"],
            functools.partial(self.worker.be_companion, child.output_end, theirs),
        )

    def _add_companion(self, child: Child, request: Request) -> None:
        """Give a child one more companion for its request, as it has asked."""
        if len(request.companions) >= self.config["companions"] + _MORE_COMPANIONS:
            raise ValueError("it asks for too many companions")
        mine, theirs = socket.socketpair()
        fds = []
        try:
            request.companions.append(self._new_companion(child, theirs))
            clock = OwnTime.of(request.companions[-1].pid)
            request.clocks.append((clock, clock.mark()))
            fds = [mine.fileno(), *clock.fds]
        except OSError:
            pass  # the child is told by the missing descriptors
        finally:
            theirs.close()
            with contextlib.suppress(OSError):  # it has ended, which the reply handler will see
                socket.send_fds(child.tasks, [GO], fds, socket.MSG_DONTWAIT)
            mine.close()

    def _new_child(self) -> Child:
        (reply, reply_end), (output, output_end) = os.pipe(), os.pipe()
        ours, theirs = socket.socketpair()
        try:
            process = fork(
                self.config["scratch"], functools.partial(self.worker.be_child, theirs, reply_end, output_end)
            )
        except OSError:
            for fd in (reply, output, output_end):
                os.close(fd)
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(reply_end)
        child = Child(process.pid, process.scratch, ours, reply, output, output_end)
        child.clock = OwnTime.of(child.pid)
        self.children[child.pid] = child
        on_line = functools.partial(self._on_child, child, self._on_line)
        self.selector.register(ours, selectors.EVENT_READ, on_line)
        for fd, action in ((reply, self._on_reply), (output, Child.read_output)):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, functools.partial(self._on_child, child, action))
        return child

    def _on_child(self, child: Child, action: Callable[[Child], None], fd: int) -> None:
        if child.pid in self.children:  # otherwise it was let go earlier in this iteration
            action(child)

    def _on_reply(self, child: Child) -> None:
        self._on_line(child)  # first what it said before it replied
        if child.pid not in self.children:
            return
        data = os.read(child.reply, 1 << 20)
        child.data += data
        head, request = HEAD_BYTES + LENGTH.size, child.request
        if request is None:
            if child.data or not data:  # unsolicited data, or it has ended: no request is waiting
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

    def _on_line(self, child: Child) -> None:
        """Handle what a child sends besides its reply.

        Reads all of it, so that nothing is left for its next request.
        """
        if not child.line_is_open:
            return
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := child.tasks.recv(1 << 18, socket.MSG_DONTWAIT):
                child.said += data
                if len(child.said) > MAX_REPLY + LENGTH.size:
                    break
            else:
                self.selector.unregister(child.tasks)  # it has ended, which the reply handler will see
                child.line_is_open = False
        try:
            for frame in take_frames(child.said):
                self._heard(child, json.loads(frame))
            trouble = len(child.said) > MAX_REPLY
        except Exception:  # noqa: BLE001  a child's bad message affects only that child
            trouble = True
        if trouble and child.request is not None:
            self._finish(child, child.request, "torn")
        elif trouble:
            self._let_go(child)

    def _heard(self, child: Child, message: dict[str, Any]) -> None:
        request = child.request
        if request is None:
            return
        request.heard += 1
        if request.heard > _MOST_HEARD:
            raise ValueError("it says too much")
        if "doing" in message:
            request.doing = (str(message["doing"])[:80], time.monotonic())
        elif "draft" in message:
            draft = message["draft"]
            request.draft = None if draft is None else json.dumps({"kind": "ok", "result": draft}).encode()
        elif "companion" in message:
            self._add_companion(child, request)
        elif message["gpu_lock"] == "released":
            self.gpu_lock.leave(child.pid)
        else:
            cap = float(message["cap"])
            if not 0 < cap < math.inf:
                raise ValueError("a lock without an end")
            self.gpu_lock.ask(child.pid, message["gpu_lock"] == "exclusive", min(cap, request.timeout))

    def _finish(
        self, child: Child, request: Request, how: str, body: bytes = b"", again: bool = False
    ) -> None:
        """Report the result to the parent, once the processes that are no longer needed have ended."""
        seconds, cut = time.monotonic() - request.started, ""
        if how in ("timeout", "overdue") and request.draft is not None:
            how, body, cut = "reply", request.draft, how
        # Unread data on the line, or the GPU lock, would carry over to the next request.
        again = again and not child.said and not self.gpu_lock.has(child.pid) and child.line_is_open
        cpu = processor_time(request.clocks)

        def tell(statuses: list[int], trouble: str, printed: bytes) -> None:
            event = {
                "id": request.number,
                "how": how,
                "cut": cut,
                "limit": request.timeout,
                "status": 0 if again else statuses.pop(0),
                "seconds": seconds,
                "cpu": cpu,
                "output": printed.decode("utf-8", "replace") + trouble,
                "companions": statuses,
            }
            write_frame(self.control, event, body)

        if not again:
            self._let_go(child, tell)
            return
        request.close_clocks()
        child.drain_output()
        printed, child.request = child.printed, None
        self.endings.end(request.companions, lambda statuses, trouble: tell(statuses, trouble, printed))

    def _let_go(
        self, child: Child, then: Callable[[list[int], str, bytes], None] = lambda *ignored: None
    ) -> None:
        """End a child and its companions, and clean up everything of theirs."""
        del self.children[child.pid]
        request = child.request
        if request is not None:
            request.close_clocks()
            self.gpu_lock.leave(child.pid)
            # Work they started on a device may run until the processes have ended: grant nobody exclusive use
            # before that.
            self.gpu_lock.hold_shared(-1 - request.number)
        child.clock.close()
        for fd in (child.reply, child.output):
            self.selector.unregister(fd)
        if child.line_is_open:
            self.selector.unregister(child.tasks)

        def close(statuses: list[int], trouble: str) -> None:
            child.drain_output()
            for fd in (child.reply, child.output, child.output_end):
                os.close(fd)
            child.tasks.close()
            if request is not None:
                self.gpu_lock.leave(-1 - request.number)
            then(statuses, trouble, child.printed)

        self.endings.end(child.processes(), close)
