"""What the isolating server promises, each promise tried by code that wants to break it.

The worker here runs the text it is sent, so that a test can be the stranger. No torch: the server is up in a
tenth of a second.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import kernelmill
from kernelmill.errors import ConfigError
from kernelmill.sandbox import (
    MAX_OUTPUT,
    MAX_REPLY,
    MAX_REQUEST,
    MAX_SCRATCH,
    Reply,
    Sandbox,
    confine,
    what_is_missing,
)
from kernelmill.sandbox.reply import signal_name
from tests.conftest import own_children

pytestmark = pytest.mark.own_servers
WORKER = """
import textwrap

def handle(request):
    space = {}
    exec(textwrap.dedent(request["code"]), space)
    return {"value": space.get("value")}
"""
TIMEOUT = 4.0
# landlock answers EXDEV, a plain OSError, where a file would move from one part of the tree to another.
REFUSED = ("PermissionError", "OSError")


@pytest.fixture(scope="session")
def worker_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("worker")
    (folder / "run_text_worker.py").write_text(WORKER)
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def sandbox(worker_folder: Path) -> Iterator[Sandbox]:
    with Sandbox("run_text_worker", timeout=TIMEOUT, memory_mb=512) as warm:
        yield warm
    assert own_children() == []


@pytest.fixture
def on_disk(worker_folder: Path) -> Iterator[Sandbox]:
    """A server on a machine where a child cannot have a file system of its own."""
    patched = """
        from kernelmill.sandbox import confine
        def absent(*a): raise OSError(1, "Operation not permitted")
        confine._own_scratch = absent
    """
    (worker_folder / "on_disk_worker.py").write_text(textwrap.dedent(patched) + WORKER)
    with Sandbox("on_disk_worker", timeout=10, memory_mb=512) as warm:
        assert has(warm, confine.SCRATCH_LIMIT)  # for the server stands in for it
        yield warm


def run(sandbox: Sandbox, code: str) -> Reply:
    return sandbox.run_sync({"code": code})


def value(sandbox: Sandbox, code: str) -> object:
    reply = run(sandbox, code)
    assert reply["kind"] == "ok", reply
    return reply["result"]["value"]


def error(sandbox: Sandbox, code: str) -> str:
    """The type of the exception that a request ended in."""
    reply = run(sandbox, code)
    assert reply["kind"] == "error", reply
    return reply["type"]


def assert_only_the_server_is_left(sandbox: Sandbox) -> None:
    """The next request works, and no process of an earlier one lives."""
    assert value(sandbox, "value = 6 * 7") == 42
    assert len(own_children()) == 1


def scratch_size(sandbox: Sandbox) -> object:
    """The size of the file system that a child writes to."""
    return value(sandbox, "import os; s = os.statvfs('.'); value = s.f_blocks * s.f_frsize")


def has(sandbox: Sandbox, protection: str) -> bool:
    return not any(line.startswith(protection) for line in sandbox.what_is_missing())


# ------------------------------------------------------------------------------------------ secrets and files


def test_no_variable_of_the_parent_reaches_the_child(
    worker_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_API_KEY", "sk-secret-in-the-parent")
    with Sandbox("run_text_worker", timeout=TIMEOUT) as fresh:
        environment = value(fresh, "import os; value = dict(os.environ)")
        assert isinstance(environment, dict)
        assert set(environment) == {"PATH", "LANG", "HOME", "TMPDIR", "OMP_NUM_THREADS"}
        reads = f"""
            import os
            value = []
            for pid in ("self", os.getppid(), {os.getpid()}):
                try:
                    value.append("sk-secret" in open(f"/proc/{{pid}}/environ").read())
                except OSError:
                    value.append(False)
        """
        assert value(fresh, reads) == [False, False, False]


def test_files_of_the_user_can_be_neither_read_nor_listed(sandbox: Sandbox, tmp_path: Path) -> None:
    if not has(sandbox, "landlock"):
        pytest.skip("this kernel has no landlock")
    token = tmp_path / ".cache" / "huggingface" / "token"
    token.parent.mkdir(parents=True)
    for secret in (token, tmp_path / ".env"):
        secret.write_text("secret")
        assert error(sandbox, f"open({str(secret)!r}).read()") == "PermissionError"
    assert error(sandbox, f"import os; os.listdir({str(tmp_path)!r})") == "PermissionError"
    assert (
        error(sandbox, f"import os; os.symlink({str(token)!r}, 'x'); open('x').read()") == "PermissionError"
    )
    assert error(sandbox, f"import os; os.link({str(token)!r}, 'x')") in REFUSED


def test_the_folder_the_parent_stands_in_and_its_home_stay_closed(sandbox: Sandbox) -> None:
    if not has(sandbox, "landlock"):
        pytest.skip("this kernel has no landlock")
    for folder in (os.getcwd(), os.path.expanduser("~"), "/proc", "/etc", "/tmp", "/"):
        assert error(sandbox, f"import os; os.listdir({folder!r})") == "PermissionError", folder


def test_python_itself_can_be_read_and_the_scratch_folder_written(sandbox: Sandbox) -> None:
    code = """
        import os, tempfile, colorsys, wave, inspect, threading
        assert "def rgb_to_hsv" in inspect.getsource(colorsys)
        assert os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"] == tempfile.gettempdir()
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, "x"), "w").write("y")
        open("/dev/null", "w").write("y")
        threads = [threading.Thread(target=os.getpid) for _ in range(3)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert open("/dev/urandom", "rb").read(1)
        value = os.getcwd()
    """
    folder = value(sandbox, code)
    assert isinstance(folder, str)
    assert not os.path.exists(folder)


@pytest.mark.parametrize(
    "attack",
    [
        "open(path, 'w')",
        "open(path, 'a')",
        "os.truncate(path, 0)",
        "os.unlink(path)",
        "os.rename(path, 'mine')",
        "os.rename(path, path + '2')",
        "os.chmod(path, 0)",
        "os.utime(path, (0, 0))",
        "os.setxattr(path, 'user.x', b'y')",
        "os.rmdir(os.path.dirname(path) + '/empty')",
        "os.mkdir(path + '.d')",
        "os.symlink('/', path + '.link')",
        "import shutil; shutil.rmtree(os.path.dirname(path))",
    ],
)
def test_nothing_outside_the_scratch_folder_can_be_changed(
    sandbox: Sandbox, tmp_path: Path, attack: str
) -> None:
    if not (has(sandbox, "landlock") and has(sandbox, "seccomp")):
        pytest.skip("this kernel has no landlock or no seccomp")
    (tmp_path / "empty").mkdir()
    file = tmp_path / "file"
    file.write_text("kept")
    before = file.stat()
    assert error(sandbox, f"import os\npath = {str(file)!r}\n{attack}") in REFUSED
    assert file.read_text() == "kept"
    assert (file.stat().st_mode, file.stat().st_mtime) == (before.st_mode, before.st_mtime)
    assert sorted(os.listdir(tmp_path)) == ["empty", "file"]


# ---------------------------------------------------------------------------------------------------- network


def test_a_listener_on_loopback_cannot_be_reached(sandbox: Sandbox, tmp_path: Path) -> None:
    unix = str(tmp_path / "s")
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(unix)
        local.listen()
        port = tcp.getsockname()[1]
        reply = run(sandbox, f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
        assert reply["kind"] == "error"
        assert reply["type"] in ("PermissionError", "OSError", "ConnectionRefusedError")
        if has(sandbox, "seccomp"):
            assert error(sandbox, f"import socket; socket.socket(1).connect({unix!r})") == "PermissionError"
        for listener in (tcp, local):
            listener.settimeout(0.05)
            with pytest.raises(TimeoutError):
                listener.accept()


def test_the_network_namespace_alone_keeps_the_child_in(worker_folder: Path) -> None:
    patched = "from kernelmill.sandbox import confine\nconfine._filter_system_calls = confine._restrict_files = lambda *a: None\n"
    (worker_folder / "no_seccomp_worker.py").write_text(patched + WORKER)
    with Sandbox("no_seccomp_worker", timeout=TIMEOUT) as weak:
        if not has(weak, "network"):
            pytest.skip("no network namespace here")
        with socket.create_server(("127.0.0.1", 0)) as tcp:
            port = tcp.getsockname()[1]
            reply = run(weak, f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
        assert (reply["kind"], reply["type"]) == ("error", "OSError")
        assert "unreachable" in reply["message"]


# ------------------------------------------------------------------------- each of these costs one request only

ENDS = {
    "an exception": ("raise KeyError('x')", "error", "KeyError"),
    "an exception without text": ("class E(Exception):\n def __str__(s): 1/0\nraise E", "error", "E"),
    "exit": ("import sys; sys.exit(0)", "error", "SystemExit"),
    "interrupt": ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
    "recursion": ("def f(): f()\nf()", "error", "RecursionError"),
    "a value that is not JSON": ("value = {1, 2}", "error", "TypeError"),
    "a huge reply": ("value = 'x' * (100 << 20)", "error", "ValueError"),
    "a deep reply": ("value = []\nfor _ in range(10**5): value = [value]", "error", "RecursionError"),
    "endless loop": ("while True: pass", "timeout", ""),
    "endless sleep": ("import time; time.sleep(1000)", "timeout", ""),
    "ignored signals": (
        "import signal, time\nfor s in range(1, 65):\n try: signal.signal(s, signal.SIG_IGN)\n"
        " except (OSError, ValueError): pass\ntime.sleep(1000)",
        "timeout",
        "",
    ),
    "hard exit": ("import os; os._exit(0)", "crashed", "status 0"),
    "abort": ("import os; os.abort()", "crashed", "SIGABRT"),
    "segmentation fault": ("import ctypes; ctypes.string_at(0)", "crashed", "SIGSEGV"),
    "suicide": ("import os; os.kill(os.getpid(), 9)", "crashed", "SIGKILL"),
    "a big allocation": ("bytearray(100 << 30)", "out_of_memory", "MemoryError"),
    "many allocations": ("x = []\nwhile True: x.append(bytearray(1 << 24))", "out_of_memory", "MemoryError"),
    "a shared mapping": ("import mmap; mmap.mmap(-1, 1 << 30)", "error", "OSError"),
    "fork": ("import os\nwhile True: os.fork()", "error", "PermissionError"),
    "spawn": ("import subprocess; subprocess.run(['/bin/true'])", "error", "PermissionError"),
    "exec": ("import os; os.execv('/bin/sh', ['sh', '-c', 'sleep 99'])", "error", "PermissionError"),
    "killing the server": ("import os; os.kill(os.getppid(), 9)", "error", "PermissionError"),
    "killing everybody": ("import os; os.kill(-1, 9)", "error", "PermissionError"),
    "limits of the server": (
        "import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        "error",
        "PermissionError",
    ),
    "own limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "error",
        "ValueError",
    ),
    "a big file": ("open('x', 'wb').write(bytes(100 << 20))", "error", "OSError"),
    "many files": ("x = [open('/dev/null') for _ in range(999)]", "error", "OSError"),
    "shared memory that stays": (
        "import ctypes\nif ctypes.CDLL(None).shmget(0, 4096, 0o1600) < 0: raise PermissionError",
        "error",
        "PermissionError",
    ),
}


@pytest.mark.parametrize(("code", "kind", "says"), ENDS.values(), ids=ENDS.keys())
def test_a_bad_end_costs_one_request(sandbox: Sandbox, code: str, kind: str, says: str) -> None:
    reply = run(sandbox, code)
    assert reply["kind"] == kind, reply
    assert says in f"{reply['type']}: {reply['message']}"
    assert len(reply["message"].splitlines()) <= 1
    assert_only_the_server_is_left(sandbox)


def test_a_child_that_uses_every_core_has_its_whole_time(sandbox: Sandbox) -> None:
    limit = value(sandbox, "import resource; value = resource.getrlimit(resource.RLIMIT_CPU)[0]")
    assert limit == (int(TIMEOUT) + 1) * len(os.sched_getaffinity(0))


def test_a_reply_that_is_printed_or_written_to_every_descriptor_is_not_believed(sandbox: Sandbox) -> None:
    forged = """
        import json, os, struct
        body = json.dumps({"kind": "ok", "result": {"value": "forged"}}).encode()
        frames = [bytes(16) + struct.pack(">I", len(body)) + body, struct.pack(">I", len(body)) + body, body]
    """
    printed = run(
        sandbox, forged + "\n        for f in frames: os.write(1, f), os.write(2, f)\n        value = 'true'"
    )
    assert (printed["kind"], printed["result"]) == ("ok", {"value": "true"})
    everywhere = """
        for fd in range(3, 256):
            for frame in frames:
                try: os.write(fd, frame)
                except OSError: pass
        os._exit(0)
    """
    assert run(sandbox, forged + everywhere)["kind"] == "crashed"
    assert_only_the_server_is_left(sandbox)


def test_what_is_printed_comes_back_cut_to_its_end(sandbox: Sandbox) -> None:
    reply = run(
        sandbox, "for i in range(200_000): print('line', i)\nimport sys; print('last', file=sys.stderr)"
    )
    assert reply["kind"] == "ok"
    assert len(reply["output"].encode()) <= MAX_OUTPUT
    assert reply["output"].endswith("line 199998\nline 199999\nlast\n")


def test_a_reply_just_under_the_limit_arrives_whole(sandbox: Sandbox) -> None:
    size = MAX_REPLY - 100
    assert value(sandbox, f"value = 'x' * {size}") == "x" * size


def test_a_request_over_the_limit_is_refused_and_not_sent(sandbox: Sandbox) -> None:
    reply = run(sandbox, "#" * (MAX_REQUEST + 1))
    assert (reply["kind"], reply["type"]) == ("error", "ValueError")
    assert_only_the_server_is_left(sandbox)


def test_a_scratch_folder_is_removed_however_deep_and_closed_it_is(on_disk: Sandbox) -> None:
    code = """
        import os
        value = os.getcwd()
        os.symlink("/", "root")
        os.mkdir("closed", 0)
        os.mkfifo("pipe")
        for i in range({depth}):
            os.mkdir("deep"), open("file", "w").close(), os.chdir("deep")
    """
    small = value(on_disk, code.replace("{depth}", "3"))
    assert isinstance(small, str)
    assert os.path.exists(os.path.dirname(small))
    assert not os.path.exists(small)
    large = value(on_disk, code.replace("{depth}", "800"))
    # Somebody else removes so much, and the next request does not wait for it.
    assert isinstance(large, str)
    assert value(on_disk, "value = 1") == 1
    while os.path.exists(large):
        time.sleep(0.05)
    time.sleep(1.1)
    server = psutil.Process(int(str(value(on_disk, "import os; value = os.getppid()"))))
    assert server.children(recursive=True) == []


FILLERS = {
    "big files": """
        for n in range(1000):
            with open(f"f{n}", "wb") as file:
                for _ in range(60): file.write(megabyte)
    """,
    "files that are removed and kept open": """
        keep = []
        for n in range(200):
            keep.append(open("f", "wb"))
            os.unlink("f")
            for _ in range(60): keep[-1].write(megabyte)
    """,
    "many files": """
        for n in range(10**6): open(f"f{n}", "wb").close()
    """,
}


@pytest.mark.parametrize("code", FILLERS.values(), ids=FILLERS.keys())
@pytest.mark.parametrize("where", ["sandbox", "on_disk"])
def test_the_disk_cannot_be_filled(request: pytest.FixtureRequest, where: str, code: str) -> None:
    server: Sandbox = request.getfixturevalue(where)
    if where == "on_disk" and "unlink" in code and not os.access("/proc/self/io", os.R_OK):
        pytest.skip("this kernel does not count what a process writes")
    free = shutil.disk_usage(tempfile.gettempdir()).free
    reply = run(server, "import os\nmegabyte = bytes(1 << 20)\n" + textwrap.dedent(code))
    assert (reply["kind"], reply["type"]) == ("error", "OSError"), reply
    assert reply["message"].startswith("wrote more than 256 MB")
    assert value(server, "import os; value = os.listdir()") == []
    # What it wrote is gone: the disk, which others use too, has about as much room as before.
    assert shutil.disk_usage(tempfile.gettempdir()).free > free - MAX_SCRATCH


def test_a_hundred_megabytes_may_be_written_and_read_again(sandbox: Sandbox, on_disk: Sandbox) -> None:
    code = """
        for name in "abcd":
            open(name, "wb").write(bytes(25 << 20))
        value = sum(len(open(name, "rb").read()) for name in "abcd")
    """
    assert value(sandbox, code) == value(on_disk, code) == 100 << 20


def test_a_scratch_folder_in_memory_is_seen_by_its_child_only(sandbox: Sandbox) -> None:
    if scratch_size(sandbox) != MAX_SCRATCH:
        pytest.skip("no mount namespace here: the server watches the disk instead")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert sandbox._connection is not None
        scratch = sandbox._connection._scratch
        future = pool.submit(run, sandbox, "import time; open('x', 'w').write('y'); time.sleep(0.5)")
        while not (folders := os.listdir(scratch)):
            time.sleep(0.01)
        time.sleep(0.2)
        assert os.listdir(os.path.join(scratch, folders[0])) == []
        assert scratch not in Path("/proc/self/mountinfo").read_text()
        assert future.result()["kind"] == "ok"
    assert os.listdir(scratch) == []


# ------------------------------------------------------------------------------------------- servers and parents


def test_two_requests_run_at_once_and_the_others_wait(sandbox: Sandbox) -> None:
    request = {"code": "import time; a = time.monotonic(); time.sleep(0.3); value = [a, time.monotonic()]"}

    async def four() -> list[Reply]:
        return await asyncio.gather(*(sandbox.run(request) for _ in range(4)))

    spans = [reply["result"]["value"] for reply in asyncio.run(four())]
    at_once = [sum(start <= moment < end for start, end in spans) for moment, _ in spans]
    assert max(at_once) == 2


def test_the_server_outlives_the_thread_that_started_it(worker_folder: Path) -> None:
    fresh = Sandbox("run_text_worker", timeout=TIMEOUT)
    pids: list[int] = []
    code = "import os; value = os.getppid()"
    thread = threading.Thread(target=lambda: pids.append(int(str(value(fresh, code)))))
    thread.start()
    thread.join()
    try:
        time.sleep(0.1)
        assert [value(fresh, code)] == pids
    finally:
        fresh.close()


def test_cancelling_a_request_kills_its_child(sandbox: Sandbox) -> None:
    async def cancelled() -> None:
        async with asyncio.timeout(0.3):
            await sandbox.run({"code": "import time; time.sleep(1000)"})

    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert_only_the_server_is_left(sandbox)


def test_a_request_that_is_cancelled_on_its_way_to_the_server_is_ended_though_its_event_loop_is_gone(
    worker_folder: Path,
) -> None:
    """A busy machine takes its time to send a request: the loop that asked may have ended by then."""
    begun, go_on = threading.Event(), threading.Event()
    with Sandbox("run_text_worker", timeout=10_000) as fresh:
        assert value(fresh, "value = 1") == 1
        servers, connection = len(own_children()), fresh._connect()
        ready = connection.wait_until_ready

        def slowly() -> list[str]:
            begun.set()
            go_on.wait()
            return ready()

        connection.wait_until_ready = slowly  # type: ignore[method-assign]

        async def cancelled() -> None:
            asking = asyncio.create_task(fresh.run({"code": "import time; time.sleep(10_000)"}))
            await asyncio.to_thread(begun.wait)
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            go_on.set()

        asyncio.run(cancelled())
        connection.wait_until_ready = ready  # type: ignore[method-assign]
        assert value(fresh, "value = 6 * 7") == 42
        # The child of a request that goes on is there until the test times out.
        while len(own_children()) > servers:
            time.sleep(0.02)


def test_a_server_that_is_killed_fails_its_requests_and_is_started_again(sandbox: Sandbox) -> None:
    assert value(sandbox, "value = 1") == 1
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        future = pool.submit(run, sandbox, "import time; time.sleep(1000)")
        while len(processes := own_children()) < 2:
            time.sleep(0.02)
        own_children()[0].kill()
        reply = future.result(timeout=240)
    assert psutil.wait_procs(processes, timeout=5)[1] == []
    assert (reply["kind"], "SIGKILL" in reply["message"]) == ("crashed", True)
    assert_only_the_server_is_left(sandbox)


PARENT = """
import os, subprocess, sys, threading, time
import psutil
from kernelmill.sandbox import Sandbox
sandbox = Sandbox("run_text_worker", timeout=100).__enter__()
sandbox.what_is_missing()
threading.Thread(target=sandbox.run_sync, args=({"code": "import time; time.sleep(1000)"},), daemon=True).start()
while len(psutil.Process().children(recursive=True)) < 2:
    time.sleep(0.02)
pids = [p.pid for p in psutil.Process().children(recursive=True)]
if "keep" in sys.argv:
    # A process that keeps a copy of every descriptor of the parent, the server's socket among them.
    fds = [int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    keeper = subprocess.Popen(["sleep", "20"], stdout=-3, pass_fds=[fd for fd in fds if os.path.exists(f"/proc/self/fd/{fd}")])
    print("keeper", keeper.pid, flush=True)
print("pids", *pids, sandbox._connection._scratch, flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("how", ["plain", "keep"])
def test_no_process_and_no_file_outlives_a_parent_that_is_killed(worker_folder: Path, how: str) -> None:
    path = os.pathsep.join(p for p in sys.path if p)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, how],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    keeper: psutil.Process | None = None
    try:
        assert parent.stdout is not None
        words = parent.stdout.readline().split()
        if words[0] == "keeper":
            keeper = psutil.Process(int(words[1]))
            words = parent.stdout.readline().split()
        processes = [psutil.Process(int(pid)) for pid in words[1:-1]]
        assert len(processes) >= 2
        assert os.path.isdir(words[-1])
    finally:
        parent.kill()
        parent.communicate()
    _, alive = psutil.wait_procs(processes, timeout=5)
    if keeper is not None:
        keeper.kill()
    assert alive == []
    assert not os.path.exists(words[-1])


def test_a_worker_that_cannot_be_imported_is_a_config_error_that_says_why() -> None:
    with Sandbox("no_such_worker_anywhere") as broken, pytest.raises(ConfigError, match="No module named"):
        broken.run_sync({})


def test_a_python_that_cannot_be_started_is_a_config_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"cannot start .*none: No such file"):
        Sandbox("run_text_worker").run_sync({})
    assert os.listdir(tmp_path) == []


def test_a_closed_sandbox_leaves_nothing_and_refuses_work(worker_folder: Path) -> None:
    sandbox = Sandbox("run_text_worker")
    with sandbox:
        assert value(sandbox, "value = 1") == 1
        scratch = sandbox._connection._scratch if sandbox._connection else ""
        assert os.path.isdir(scratch)
        server = own_children()[-1]
    assert not server.is_running()
    assert not os.path.exists(scratch)
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.run_sync({})


# --------------------------------------------------------------------------------------- what a machine cannot give


def test_this_machine_names_what_it_cannot_give(sandbox: Sandbox) -> None:
    missing = what_is_missing()
    assert missing == sandbox.what_is_missing()
    for line in missing:
        protection, _, reason = line.partition(": ")
        assert protection
        assert reason


def test_a_protection_that_cannot_be_had_is_named_and_the_others_still_hold(worker_folder: Path) -> None:
    lacking = """
        from kernelmill.sandbox import confine
        def absent(*a): raise OSError(38, "Function not implemented")
        confine._restrict_files = absent
    """
    (worker_folder / "lacking_worker.py").write_text(textwrap.dedent(lacking) + WORKER)
    with Sandbox("lacking_worker", timeout=TIMEOUT) as weak:
        assert "landlock: Function not implemented" in weak.what_is_missing()
        assert error(weak, "import os; os.fork()") == "PermissionError"
        if os.getuid() == 0 or has(weak, "network"):
            # Even without landlock: the parent has capabilities, or a user namespace, that the child has not.
            assert error(weak, f"open('/proc/{os.getpid()}/environ').read()") == "PermissionError"


@pytest.mark.parametrize(
    ("step", "protection"), [("_drop_capabilities", "capabilities"), ("_own_scratch", confine.SCRATCH_LIMIT)]
)
def test_a_child_that_lacks_a_protection_the_machine_has_runs_nothing(
    sandbox: Sandbox, worker_folder: Path, step: str, protection: str
) -> None:
    failing = """
        from kernelmill.sandbox import confine
        real = confine.{step}
        def later(*a):
            if not folder.endswith("probe"): raise OSError(1, "Operation not permitted")
            real(*a)
        def entered(scratch, *a):
            global folder
            folder = scratch
            return confining(scratch, *a)
        from kernelmill.sandbox import child
        confining, child.confine = child.confine, entered
        confine.{step} = later
    """
    (worker_folder / f"failing{step}_worker.py").write_text(
        textwrap.dedent(failing).replace("{step}", step) + WORKER
    )
    with Sandbox(f"failing{step}_worker", timeout=TIMEOUT) as weak:
        if step == "_own_scratch" and scratch_size(sandbox) != MAX_SCRATCH:
            pytest.skip("no mount namespace here")
        reply = run(weak, "value = 1")
    assert (reply["kind"], reply["type"]) == ("error", "RuntimeError")
    assert reply["message"] == f"not confined: {protection}: Operation not permitted"


def test_a_machine_without_namespaces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(confine, "_call", refuse)
    assert confine.leave_network() == ["network namespace: Operation not permitted"]


AS_NOBODY = """
import json, os, sys
from kernelmill.sandbox import Sandbox
with Sandbox("run_text_worker", timeout=5) as sandbox:
    def ask(code):
        reply = sandbox.run_sync({"code": code})
        return reply["type"] or reply["result"].get("value")
    print(json.dumps({
        "uid": os.getuid(),
        "missing": sandbox.what_is_missing(),
        "environ": ask("import os; value = sorted(os.environ)"),
        "etc": ask("import os; os.listdir('/etc')"),
        "tmp": ask("open('/tmp/written-by-nobody', 'w')"),
        "scratch": ask("value = open('x', 'w').write('yes')"),
        "fill": ask("b = bytes(50 << 20)\\nfor n in range(10): open(str(n), 'wb').write(b)"),
        "fork": ask("import os; os.fork()"),
        "socket": ask("import socket; socket.socket()"),
        "parent": ask(f"open('/proc/{os.getpid()}/environ').read()"),
    }))
"""


def test_all_of_it_works_for_a_user_who_is_not_root(worker_folder: Path) -> None:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to become somebody else (every other test here runs as you)")
    nobody = pwd.getpwnam("nobody")
    become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    candidates = [
        sys.executable,
        f"/usr/bin/python3.{sys.version_info[1]}",
        f"/usr/local/bin/python3.{sys.version_info[1]}",
    ]
    for python in candidates:
        # It must be able to start itself: setpriv may read more than the user it turns into.
        again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'], check=True)"
        tried = subprocess.run([*become, python, "-c", again], capture_output=True, cwd="/", check=False)
        if tried.returncode == 0:
            break
    else:
        pytest.skip("no Python of this version that another user may run")
    folder = Path("/tmp") / f"nobody-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        package = Path(kernelmill.__file__).parent
        shutil.copytree(package, folder / "kernelmill", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(worker_folder / "run_text_worker.py", folder)
        done = subprocess.run(
            [*become, python, "-c", AS_NOBODY],
            env={"PYTHONPATH": str(folder), "FAKE_API_KEY": "secret", "HOME": "/nonexistent"},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("uid") == nobody.pw_uid
    missing = said.pop("missing")
    if missing:
        pytest.skip(f"as nobody this machine lacks: {missing}")
    assert said == {
        "environ": ["HOME", "LANG", "OMP_NUM_THREADS", "PATH", "TMPDIR"],
        "etc": "PermissionError",
        "tmp": "PermissionError",
        "scratch": 3,
        "fill": "OSError",
        "fork": "PermissionError",
        "socket": "PermissionError",
        "parent": "PermissionError",
    }


def test_a_request_to_a_warm_server_takes_a_fraction_of_what_starting_one_takes(sandbox: Sandbox) -> None:
    def seconds(server: Sandbox) -> float:
        start = time.perf_counter()
        assert run(server, "")["kind"] == "ok"
        return time.perf_counter() - start

    with Sandbox("run_text_worker", timeout=TIMEOUT) as fresh:
        cold = seconds(fresh)
    run(sandbox, "")
    assert min(seconds(sandbox) for _ in range(20)) < cold / 4


def test_signals_have_names() -> None:
    assert signal_name(signal.SIGKILL) == "SIGKILL"
    assert signal_name(63) == "signal 63"


# ------------------------------------------------------------------------------------------ companions and programs

PAIR = """
import os, textwrap, traceback

def handle(request, sockets):
    for end, code in zip(sockets, request["companions"]):
        end.sendall(code.encode().ljust(4096))
    answers = []
    for end in sockets:
        end.settimeout(1)
        try:
            answers.append(end.recv(4096).decode())
        except TimeoutError:
            answers.append("silent")
    while request.get("never"):
        sockets[0].recv(1)
    return {"answers": answers, "pid": os.getpid()}

def companion(end):
    space = {"end": end}
    exec(textwrap.dedent(end.recv(4096).decode()), space)
"""


def processes_of(sandbox: Sandbox) -> int:
    """The server and what lives below it."""
    assert sandbox._connection is not None
    server = psutil.Process(sandbox._connection._process.pid)
    return 1 + len(server.children(recursive=True))


@pytest.fixture
def pair(worker_folder: Path) -> Iterator[Sandbox]:
    (worker_folder / "pair_worker.py").write_text(PAIR)
    with Sandbox("pair_worker", timeout=TIMEOUT, memory_mb=512, companions=2) as warm:
        yield warm


def test_a_companion_talks_to_its_child_alone_from_a_process_of_its_own(pair: Sandbox) -> None:
    says = """
        import os
        end.sendall(f"{os.getpid()} {os.getcwd()}".encode())
    """
    reply = pair.run_sync({"companions": [says, says]})
    first, second = (answer.split() for answer in reply["result"]["answers"])
    assert len({first[0], second[0], str(reply["result"]["pid"])}) == 3
    assert first[1] != second[1], "each has a scratch folder of its own"


def test_a_companion_is_confined_as_its_child_is(pair: Sandbox) -> None:
    tries = """
        import os, socket
        seen = []
        for attempt in (os.fork, lambda: socket.socket(), lambda: open("/etc/shadow"), os.setsid):
            try:
                attempt()
                seen.append("allowed")
            except OSError as error:
                seen.append(type(error).__name__)
        end.sendall(" ".join(seen).encode())
    """
    reply = pair.run_sync({"companions": [tries, tries]})
    assert reply["result"]["answers"] == ["PermissionError " * 3 + "PermissionError"] * 2


def test_a_companion_that_dies_or_hangs_costs_its_request_alone_and_leaves_nothing(pair: Sandbox) -> None:
    crash, hang = "import os; os.kill(os.getpid(), 11)", "while True: pass"
    reply = pair.run_sync({"companions": [crash, hang]})
    assert reply["kind"] == "ok"
    assert reply["result"]["answers"] == ["", "silent"]
    assert reply["companions"] == ["SIGSEGV", "SIGKILL"]
    assert pair.run_sync({"companions": ["end.sendall(b'a')"] * 2})["result"]["answers"] == ["a", "a"]
    assert processes_of(pair) == 1


ASKS = """
import os, textwrap
from kernelmill.sandbox import inside

def handle(request, sockets):
    answers = []
    for code in request["more"]:
        end, clock = inside.server.new_companion()
        before = clock.mark()
        end.sendall(code.encode())
        end.settimeout(20)
        answers.append(end.recv(4096).decode())
        answers.append(clock.since(before) > 0)
        end.close()
    return {"answers": answers, "pid": os.getpid()}

def companion(end):
    exec(textwrap.dedent(end.recv(4096).decode()), {"end": end})
"""


@pytest.fixture
def asking(worker_folder: Path) -> Iterator[Sandbox]:
    (worker_folder / "asking_worker.py").write_text(ASKS)
    with Sandbox("asking_worker", timeout=TIMEOUT, memory_mb=512, companions=1) as warm:
        yield warm


def test_a_child_gets_more_companions_when_it_asks_but_not_any_number(asking: Sandbox) -> None:
    says = "import os; end.sendall(str(os.getpid()).encode())"
    assert asking.run_sync({"more": []})["result"]["answers"] == []
    reply = asking.run_sync({"more": [says]})
    pid, clock_runs = reply["result"]["answers"]
    assert int(pid) != reply["result"]["pid"]
    assert clock_runs
    assert len(reply["companions"]) == 2
    assert len(asking.run_sync({"more": [says] * 4})["result"]["answers"]) == 8
    assert asking.run_sync({"more": [says] * 5})["kind"] == "crashed"
    assert processes_of(asking) == 1


def test_a_companion_that_was_asked_for_is_confined_too(asking: Sandbox) -> None:
    tries = """
        import os
        try:
            os.fork()
        except OSError as error:
            end.sendall(type(error).__name__.encode())
    """
    assert asking.run_sync({"more": [tries]})["result"]["answers"][0] == "PermissionError"


def test_companions_end_with_a_request_that_times_out(pair: Sandbox) -> None:
    drip = "import time\nwhile True: end.sendall(b'x'); time.sleep(0.1)"
    reply = pair.run_sync({"companions": [drip, drip], "never": True})
    assert reply["kind"] == "timeout"
    assert processes_of(pair) == 1


@pytest.fixture
def executing(worker_folder: Path) -> Iterator[Sandbox]:
    program = os.path.realpath(shutil.which("cat") or "/bin/cat")
    with Sandbox("run_text_worker", timeout=TIMEOUT, memory_mb=512, programs=[program]) as warm:
        yield warm


def test_a_child_runs_the_programs_named_and_no_other(executing: Sandbox) -> None:
    cat = os.path.realpath(shutil.which("cat") or "/bin/cat")
    runs = f"""
        import subprocess
        open("a", "w").write("text")
        value = [subprocess.run([{cat!r}, "a"], capture_output=True, text=True).stdout]
        for program in ("/bin/sh", "/bin/ls", {sys.executable!r}):
            try:
                subprocess.run([program, "-c", ""])
                value.append("ran")
            except OSError as error:
                value.append(type(error).__name__)
    """
    assert value(executing, runs) == ["text", *["PermissionError"] * 3]


def test_what_a_child_writes_itself_it_cannot_execute(executing: Sandbox) -> None:
    cat = os.path.realpath(shutil.which("cat") or "/bin/cat")
    copies = f"""
        import shutil, subprocess
        shutil.copyfile({cat!r}, "mine")
        subprocess.run([{cat!r}, "/dev/null"], check=True)
        subprocess.run(["./mine", "/dev/null"])
    """
    assert error(executing, copies) == "PermissionError"


def test_a_child_that_may_execute_still_cannot_copy_itself_or_leave_its_group(executing: Sandbox) -> None:
    assert error(executing, "import os; os.fork()") == "PermissionError"
    assert error(executing, "import os; os.setsid()") == "PermissionError"


def test_a_program_left_running_ends_with_its_child(executing: Sandbox) -> None:
    cat = os.path.realpath(shutil.which("cat") or "/bin/cat")
    leaves = f"""
        import os, subprocess
        read, write = os.pipe()
        value = subprocess.Popen([{cat!r}], stdin=read, pass_fds=[write]).pid
    """
    left = value(executing, leaves)
    assert isinstance(left, int)
    while psutil.pid_exists(left) and psutil.Process(left).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert value(executing, "value = 6 * 7") == 42
    assert processes_of(executing) == 1
