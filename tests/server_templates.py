"""Servers forked from templates: processes that have imported a worker, one for each worker and environment.

A server takes two to nine seconds to import and prepare its worker. The tests start a hundred of them, most
with settings of their own, from several processes. A template does this once for the whole run of pytest, and
forks a server in milliseconds. Such a server is the template's child, not the test's. A test about how servers
start and end is marked `own_servers` and starts them as users do.

`python` with the arguments `COMMAND` runs the command line on templates, as `python -m kernelmill` does without.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import importlib
import json
import os
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from kernelmill.sandbox import parent
from kernelmill.sandbox.wire import Settings

FOLDER = "MILL_TEST_TEMPLATES"
"""The variable with the folder of the templates' sockets: one for each run of pytest, set by its first process."""
ROOT = Path(__file__).resolve().parents[1]
COMMAND = [
    "-c",
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests import server_templates as templates; templates.use();"
    "from kernelmill import cli; sys.argv[0] = cli.__file__.replace('cli.py', '__main__.py'); sys.exit(cli.main())",
]
_BOOT = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from tests.server_templates import be_template
pid = os.fork()
if pid:
    print(pid)
    sys.exit()
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
be_template(*json.loads(sys.argv[2]))
"""


def begin() -> None:
    """Called once, before any test and by the process that outlives them all."""
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="mill-templates-")
    os.environ[f"{FOLDER}_PID"] = str(os.getpid())


def end() -> None:
    folder = Path(os.environ.pop(FOLDER))
    for file in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)  # its servers end with it
    shutil.rmtree(folder)


def use() -> None:
    parent._start_server = start_server  # type: ignore[assignment]


def start_server(settings: Settings, scratch: str, fd: int) -> ForkedServer:
    """Replaces `parent._start_server`."""
    config = parent.server_config(settings, scratch, fd)
    line = _template(settings, config["path"])
    request = {"config": config, "environment": parent.server_environment(settings, scratch)}
    message = json.dumps(request).encode()
    socket.send_fds(line, [len(message).to_bytes(4, "big")], [fd])
    line.sendall(message)
    return ForkedServer(line)


class ForkedServer:
    """What a connection needs of `subprocess.Popen`, for a process that is another's child."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._lock = line, threading.Lock()
        self.returncode: int | None = None
        said = line.recv(8)
        if len(said) != 8:
            raise OSError(0, "the template of this server has ended")
        self.pid = int.from_bytes(said, "big")

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None and not select.select([self._line], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("a forked server", timeout or 0.0)
        with self._lock:
            if self.returncode is None:
                said = self._line.recv(8)
                self.returncode = int.from_bytes(said, "big", signed=True) if said else -signal.SIGKILL
                self._line.close()
        return self.returncode

    def kill(self) -> None:
        with self._lock:
            if self.returncode is None and not select.select([self._line], [], [], 0)[0]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)


def _template(settings: Settings, path: list[str]) -> socket.socket:
    """A connection to the template for these settings, which is started if there is none."""
    path = [entry for entry in dict.fromkeys(path) if entry != str(ROOT)]  # commands and pytest differ by it
    key = json.dumps([settings["worker"], settings["environment"], path], sort_keys=True)
    name = Path(os.environ[FOLDER]) / hashlib.sha256(key.encode()).hexdigest()[:16]
    line = socket.socket(socket.AF_UNIX)
    with open(f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            line.connect(f"{name}.socket")
        except (FileNotFoundError, ConnectionRefusedError):
            _start_template(settings, path, name)
            line.connect(f"{name}.socket")
    return line


def _start_template(settings: Settings, path: list[str], name: Path) -> None:
    Path(f"{name}.socket").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{name}.socket")
        listener.listen(64)  # whoever connects now waits until it has imported
        given = [settings["worker"], listener.fileno(), int(os.environ[f"{FOLDER}_PID"])]
        # It forks and ends, so that the template is not a child of this process, which may end before it.
        started = subprocess.run(
            [sys.executable, "-I", "-u", "-c", _BOOT, json.dumps([*path, str(ROOT)]), json.dumps(given)],
            env=parent.server_environment(settings, str(name.parent)),
            cwd=name.parent,
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=True,
        )
    Path(f"{name}.pid").write_text(started.stdout.decode())


def be_template(worker: str, listener_fd: int, owner: int) -> None:
    """Import the worker, then fork a server for whoever asks, until the run of pytest ends."""
    listener, owner_fd = socket.socket(fileno=listener_fd), os.pidfd_open(owner)
    module = importlib.import_module(worker)
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        prepare()
        module.prepare = lambda: None  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(owner_fd, selectors.EVENT_READ)
    lines: dict[int, tuple[int, socket.socket]] = {}
    """By the server's descriptor: its number, and the line to whoever asked for it."""
    while True:
        for key, _ in selector.select():
            if key.fd == owner_fd:
                return
            if key.fd == listener_fd:
                line, _ = listener.accept()
                pid = _fork_server(line)
                line.sendall(pid.to_bytes(8, "big"))
                pidfd = os.pidfd_open(pid)
                selector.register(pidfd, selectors.EVENT_READ)
                lines[pidfd] = pid, line
            else:
                pid, line = lines.pop(key.fd)
                selector.unregister(key.fd)
                os.close(key.fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with contextlib.suppress(OSError):  # whoever asked is gone
                    line.sendall(status.to_bytes(8, "big", signed=True))
                line.close()


def _fork_server(line: socket.socket) -> int:
    head, fds, _, _ = socket.recv_fds(line, 4, 1)
    text = b""
    while len(text) < int.from_bytes(head, "big"):
        text += line.recv(1 << 20)
    request = json.loads(text)
    request["config"] |= {"fd": fds[0], "parent": os.getpid()}
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _be_server(request)
            status = 0
        finally:
            os._exit(status)
    os.close(fds[0])
    return pid


def _be_server(request: dict[str, Any]) -> None:
    from kernelmill.sandbox.server import serve

    config = request["config"]
    os.setsid()
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > 2 and fd != config["fd"]:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(fd)
    os.chdir(config["scratch"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    serve(config)
