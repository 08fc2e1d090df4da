"""What a child gives up before it runs a stranger's code, and the server before it imports its worker.

Every step raises OSError, with what it means as its text, where the machine cannot give the protection.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import resource
import signal
import socket
import struct
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelmill.sandbox.wire import MAX_SCRATCH, MAX_SCRATCH_FILES

SCRATCH_LIMIT = "scratch limit"
"""The protection that `confine` names where a child cannot have a file system of its own: the server then watches."""
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_NEWNS, _CLONE_THREAD = 0x10000000, 0x40000000, 0x00020000, 0x00010000
_CLONE_VFORK = 0x00004000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 1 << 18
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1")
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


def _call(function: str, *arguments: Any) -> int:
    """A libc call, its integers as longs; raises OSError."""
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = getattr(_libc, function)(*values)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def leave_network() -> list[str]:
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


def confine(
    scratch: str,
    readable: list[str],
    server: int,
    timeout: float,
    memory_mb: int,
    programs: list[str],
    gpu: bool = False,
) -> list[str]:
    """Give up everything a child of `server` does not need; names what could not be given up.

    `programs` are the files that it may execute: with none it makes no process, with some it makes only
    processes that become one of them. With `gpu` it may use NVIDIA's devices, for which the driver needs a local
    socket, and to name its threads.
    """
    os.setsid()
    missing = []
    try:
        _own_scratch(scratch)
    except OSError as error:
        missing.append(f"{SCRATCH_LIMIT}: {error.strerror}")
    os.chdir(scratch)
    os.environ.update(HOME=scratch, TMPDIR=scratch)
    tempfile.tempdir = scratch
    steps: list[tuple[str, Callable[[], object]]] = [
        ("end with the server", lambda: end_with(server)),
        # Where memory runs out, let the kernel take this process and not the user's.
        ("first to go without memory", lambda: Path("/proc/self/oom_score_adj").write_text("1000")),
        ("resource limits", lambda: _limit_resources(timeout, memory_mb, gpu)),
        ("no new privileges", lambda: _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
        ("landlock", lambda: _restrict_files(readable, scratch, programs, gpu)),
        ("capabilities", _drop_capabilities),
        ("seccomp", lambda: _filter_system_calls(bool(programs), gpu)),
    ]
    for name, step in steps:
        try:
            step()
        except OSError as error:
            missing.append(f"{name}: {error.strerror}")
            if name == "seccomp":  # the next best: no thread either, and no bound on root
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return missing


def _own_scratch(scratch: str) -> None:
    """Lay a file system of limited size over the scratch folder, seen by this process only and gone with it."""
    _call("unshare", _CLONE_NEWNS)
    # Without this, a mount on a shared tree would be seen by the whole machine.
    _call("mount", None, ctypes.c_char_p(b"/"), None, _MS_REC | _MS_PRIVATE, None)
    size = f"size={MAX_SCRATCH},nr_inodes={MAX_SCRATCH_FILES},mode=0700".encode()
    kind, target = ctypes.c_char_p(b"tmpfs"), ctypes.c_char_p(os.fsencode(scratch))
    _call("mount", kind, target, kind, _MS_NOSUID | _MS_NODEV, ctypes.c_char_p(size))


def end_with(server: int) -> None:
    """Have the kernel kill this process, a child of `server`, when that ends."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)  # it died before the line above


def _limit_resources(timeout: float, memory_mb: int, gpu: bool) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    seconds = (int(timeout) + 1) * len(os.sched_getaffinity(0))  # of all threads together
    for which, limit in (
        (resource.RLIMIT_CPU, seconds),
        # On top of what is mapped already: a CUDA build of torch maps gigabytes that nobody touches. CUDA itself
        # reserves more addresses than there is memory, so there only what can be written counts.
        (
            resource.RLIMIT_DATA if gpu else resource.RLIMIT_AS,
            pages * resource.getpagesize() + (memory_mb << 20),
        ),
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


def readable_paths() -> list[str]:
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
    found.append(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # kernelmill
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


def _gpu_paths() -> tuple[list[str], list[str]]:
    """What CUDA reads, and what it opens for writing: seen by tracing its first call."""
    reads = [
        "/proc/devices",
        "/proc/driver/nvidia",
        "/proc/self",
        "/proc/sys/vm/mmap_min_addr",
        "/sys/bus/pci",
    ]
    reads += ["/sys/devices", "/usr/local/nvidia", "/usr/local/cuda", "/dev/nvidia-caps"]
    # What a C compiler reads: Triton builds a launcher for each kind of kernel.
    reads += ["/usr/include", "/usr/libexec", sysconfig.get_paths()["include"]]
    writes = [*glob.glob("/dev/nvidia[0-9]*"), "/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/self/task"]
    return [p for p in reads if os.path.exists(p)], [p for p in writes if os.path.exists(p)]


def _restrict_files(readable: list[str], scratch: str, programs: list[str], gpu: bool) -> None:
    """landlock(7): rights are bits, in the order of the kernel's header; more of them in every version."""
    create, add, restrict = 444, 445, 446  # the same on every architecture
    try:
        version = _call("syscall", create, None, 0, 1)
    except OSError as error:
        problem = f"{error.strerror}: every file of the user can be read and written"
        raise OSError(error.errno, problem) from None
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    execute, write, read, read_folder, truncate = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
    make_char, make_socket, make_block, control = 1 << 6, 1 << 9, 1 << 11, 1 << 15
    handled = (1 << rights) - 1
    # Next to files: no TCP (4 and newer); no signal and no abstract socket out of here (6 and newer).
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call("syscall", create, ctypes.c_char_p(attributes), len(attributes), 0)
    everything = handled & ~(execute | make_char | make_socket | make_block)
    try:
        # The kernel opens a program's loader for execution, too.
        run = [*programs, *(path for path in _LOADERS if os.path.exists(path))] if programs else []
        reads, writes = _gpu_paths() if gpu else ([], [])
        for path in [*readable, scratch, *run, *reads, *writes]:
            allowed = everything if path == scratch else read | read_folder
            if path in writes:
                allowed |= (write | truncate | control) & handled
            if path in run:
                allowed |= execute
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
    (57, None),  # fork
    (112, 157), (109, 154),  # setsid, setpgid: what a child starts stays in its group, and dies with it
    (200, 130), (424, 424), (434, 434), (438, 438),  # tkill, pidfd_send_signal, pidfd_open, pidfd_getfd
    (425, 425),  # io_uring_setup
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
# Refused to a child that may execute nothing: vfork, execve, execveat.
_EXECUTING = ((58, None), (59, 221), (322, 281))
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NONE = 0xFFFFFFFF  # no family of addresses
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _filter_system_calls(executing: bool, gpu: bool = False) -> None:
    """seccomp(2), by a program for the kernel's packet filter: what is not refused below is allowed.

    With `executing`, a new process may be made whose maker waits until it has become another program, which
    landlock chooses; a plain copy of this one never. With `gpu`, a socket to processes of the same network
    namespace may be made, in which there are only such children.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"unknown machine {machine}: processes and sockets are not refused")
    column, architecture = _ARCHITECTURES[machine]
    clone_flags = _CLONE_THREAD | (_CLONE_VFORK if executing else 0)
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse, absent = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    # Each step: code, how many to jump over if true, if false, operand. Offsets: 0 number, 4 machine, 16 argument.
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, kill)]  # x86's second set of numbers
    for numbers in _REFUSED if executing else (*_REFUSED, *_EXECUTING):
        if (number := numbers[column]) is not None:
            steps += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    steps += [(equal, 0, 1, _CLONE3[column]), (answer, 0, 0, absent)]  # libc then turns to clone
    steps += [(equal, 0, 4, _CLONE[column]), (load, 0, 0, 16), (any_bit, 0, 1, clone_flags)]
    steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    steps += [
        (equal, 0, 4, _SOCKET[column]),
        (load, 0, 0, 16),
        (equal, 0, 1, socket.AF_UNIX if gpu else _NONE),
    ]
    steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    for own in _OWN:
        steps += [(equal, 0, 5, own[column]), (load, 0, 0, 16), (equal, 1, 0, 0), (equal, 0, 1, os.getpid())]
        steps += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    steps.append((answer, 0, 0, allow))
    program = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    header = struct.pack("@HP", len(steps), ctypes.addressof(program))
    _call("prctl", _PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0)
