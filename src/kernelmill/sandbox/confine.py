"""Drop privileges: a child before it runs untrusted code, the server before it imports its worker.

Every step raises OSError, with an explanation as its text, if the machine does not support the protection.
"""

from __future__ import annotations

import ctypes
import errno
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

from kernelmill.sandbox.gpu_vendors import vendor_here
from kernelmill.sandbox.wire import MAX_SCRATCH, MAX_SCRATCH_FILES

SCRATCH_LIMIT = "scratch limit"
"""The protection that `confine` reports missing if a child cannot mount its own tmpfs.

The server then watches the folder.
"""
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_NEWNS, _CLONE_THREAD = 0x10000000, 0x40000000, 0x00020000, 0x00010000
_CLONE_VFORK = 0x00004000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 1 << 18
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1")
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


def _call(function: str, *arguments: Any) -> int:
    """Call a libc function, passing integers as longs. Raises OSError on failure."""
    values = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result: int = getattr(_libc, function)(*values)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def leave_network() -> list[str]:
    """Move this process, which must have no threads yet, to an empty network namespace."""
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
    """Drop everything a child of `server` does not need, and return what could not be dropped.

    `programs` are the files the child may execute. Without any, it cannot create a process. With some, every
    process it creates must become one of them. With `gpu` it may use the machine's GPUs; the driver needs a local
    socket for them and the right to name its threads.
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
        # When memory runs out, the OOM killer should take this process and not one of the user's.
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
            if name == "seccomp":  # fallback: it also forbids threads, and does not bind root
                resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    return missing


def _own_scratch(scratch: str) -> None:
    """Mount a tmpfs of limited size on the scratch folder, visible to this process only and gone with it."""
    _call("unshare", _CLONE_NEWNS)
    # Without this, a mount on a shared tree would be visible to the whole machine.
    _call("mount", None, ctypes.c_char_p(b"/"), None, _MS_REC | _MS_PRIVATE, None)
    size = f"size={MAX_SCRATCH},nr_inodes={MAX_SCRATCH_FILES},mode=0700".encode()
    kind, target = ctypes.c_char_p(b"tmpfs"), ctypes.c_char_p(os.fsencode(scratch))
    _call("mount", kind, target, kind, _MS_NOSUID | _MS_NODEV, ctypes.c_char_p(size))


def end_with(server: int) -> None:
    """Have the kernel kill this process, a child of `server`, when the server ends."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)  # the server died before the prctl call


def _limit_resources(timeout: float, memory_mb: int, gpu: bool) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    seconds = (int(timeout) + 1) * len(os.sched_getaffinity(0))  # of all threads together
    for which, limit in (
        (resource.RLIMIT_CPU, seconds),
        # The limit is added to what is mapped already: a CUDA build of torch maps gigabytes that are never
        # touched. CUDA itself reserves more address space than there is memory, so with a GPU only writable
        # data counts.
        (
            resource.RLIMIT_DATA if gpu else resource.RLIMIT_AS,
            pages * resource.getpagesize() + (memory_mb << 20),
        ),
        (resource.RLIMIT_FSIZE, 64 << 20),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
    ):
        # The soft CPU limit sends SIGXCPU, which distinguishes it from a plain kill. The hard limit always
        # kills.
        soft, hard = limit, limit + (which == resource.RLIMIT_CPU)
        allowed = resource.getrlimit(which)[1]
        if allowed != resource.RLIM_INFINITY:
            soft, hard = min(soft, allowed), min(hard, allowed)
        resource.setrlimit(which, (soft, hard))


def _drop_capabilities() -> None:
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _call("capset", ctypes.c_char_p(header), ctypes.c_char_p(nothing))


def readable_paths() -> list[str]:
    """Return what a child may read: Python, the packages, the system libraries. No parent folder of these."""
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
    # Modules imported from elsewhere (a PYTHONPATH) are added per package: their folder may contain anything.
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
    """Return the paths that a process with a GPU reads, and those it opens for writing."""
    vendor = vendor_here()
    # Paths that a C compiler reads: Triton builds a launcher for each kind of kernel.
    reads = [*vendor.reads, "/usr/include", "/usr/libexec", sysconfig.get_paths()["include"]]
    writes = [*vendor.device_files().values(), *vendor.writes]
    return [p for p in reads if os.path.exists(p)], [p for p in writes if os.path.exists(p)]


def _restrict_files(readable: list[str], scratch: str, programs: list[str], gpu: bool) -> None:
    """Restrict file access with landlock(7).

    Rights are bits in the order of the kernel header; each version adds some.
    """
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
    # Beyond files: no TCP (version 4 and newer); no signals and no abstract sockets to the outside (6 and
    # newer).
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _call("syscall", create, ctypes.c_char_p(attributes), len(attributes), 0)
    everything = handled & ~(execute | make_char | make_socket | make_block)
    try:
        # The kernel also opens a program's loader for execution.
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


# System call numbers to refuse, on x86_64 and aarch64. None: the call does not exist there.
_REFUSED: tuple[tuple[int | None, int | None], ...] = (
    (57, None),  # fork
    (112, 157), (109, 154),  # setsid, setpgid: a child's processes stay in its group and die with it
    (200, 130), (424, 424), (434, 434), (438, 438),  # tkill, pidfd_send_signal, pidfd_open, pidfd_getfd
    (425, 425),  # io_uring_setup
    (101, 117), (310, 270), (311, 271), (440, 440), (312, 272),  # ptrace, process_vm_*, process_madvise, kcmp
    (141, 140), (251, 30), (144, 119), (142, 118), (314, 274),  # setpriority, ioprio_set, sched_set*
    # chmod, chown, utime and xattr in all their forms: landlock does not cover them.
    (90, None), (91, 52), (268, 53), (452, 452), (92, None), (94, None), (93, 55), (260, 54),
    (132, None), (235, None), (280, 88), (261, None), (188, 5), (189, 6), (190, 7), (197, 14), (198, 15),
    (199, 16), (463, 463), (466, 466), (469, 469),
    (29, 194), (68, 186), (64, 190), (240, 180), (319, 279),  # shmget, msgget, semget, mq_open, memfd_create
    (165, 40), (166, 39), (272, 97), (308, 268),  # mount, umount2, unshare, setns
    (250, 219), (248, 217), (249, 218),  # keyctl, add_key, request_key
    (321, 280), (298, 241), (323, 282), (304, 265),  # bpf, perf_event_open, userfaultfd, open_by_handle_at
)  # fmt: skip
# Allowed only on the process itself: kill, tgkill, rt_sigqueueinfo, rt_tgsigqueueinfo, prlimit64,
# setaffinity.
_OWN = ((62, 129), (234, 131), (129, 138), (297, 240), (302, 261), (203, 122))
# Refused to a child that may execute no program: vfork, execve, execveat.
_EXECUTING = ((58, None), (59, 221), (322, 281))
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NONE = 0xFFFFFFFF  # not an address family
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _filter_system_calls(executing: bool, gpu: bool = False) -> None:
    """Install a seccomp(2) BPF filter that allows every system call except those refused below.

    With `executing`, the child may create a process with vfork, which must then execute a program that
    landlock allows. A plain fork is never allowed. With `gpu`, the child may create a Unix socket. Its
    abstract addresses are those of the server's network namespace, which contains only such children.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        raise OSError(errno.ENOSYS, f"unknown machine {machine}: processes and sockets are not refused")
    column, architecture = _ARCHITECTURES[machine]
    clone_flags = _CLONE_THREAD | (_CLONE_VFORK if executing else 0)
    load, equal, at_least, any_bit, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse, absent = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    # Each step: opcode, jump offset if true, if false, operand. Data offsets: 0 number, 4 machine, 16
    # argument.
    steps = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, kill), (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, kill)]  # the x32 system call numbers
    for numbers in _REFUSED if executing else (*_REFUSED, *_EXECUTING):
        if (number := numbers[column]) is not None:
            steps += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    steps += [(equal, 0, 1, _CLONE3[column]), (answer, 0, 0, absent)]  # libc then falls back to clone
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
