"""The orchestrator's side of cross-compilation: programs, error texts, and who is to blame.

`cross_compile` sends a request to a `Sandbox` running `compile.worker`. It returns, for every target, what
the real compiler said about every kernel:

    {"targets": {"sm_90": {"ok": True, "kernels": {"add_kernel": {
        "shared": 0, "regs": 30, "spills": 0, "s": 0.05, "error": None, "status": None}}}},
     "seconds": 0.06}

`status` is a verdict's status, or None if the kernel compiles and fits: COMPILE_ERROR, OUT_OF_RESOURCES,
TIMEOUT (this kernel alone took all of its time), UNSUPPORTED (the result is unknown: the kernel cannot be
built apart from the run, or others took the time).

Standard library, `kernelmill.sandbox` and `targets` only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from kernelmill.evaluate.compile.targets import TARGETS, Target
from kernelmill.sandbox import CHILD_PATH, Reply, Sandbox
from kernelmill.sandbox.gpu_vendors import VENDORS

MAX_ERROR = 2000
_STATUSES = ("COMPILE_ERROR", "OUT_OF_RESOURCES", "TIMEOUT", "UNSUPPORTED")
NOT_BUILDABLE = "it cannot be built apart from its call"
WORKER = "kernelmill.evaluate.compile.worker"


class KernelReport(TypedDict):
    shared: int | None
    """Bytes of shared memory per block."""
    regs: int | None
    """Registers per thread."""
    spills: int | None
    """Bytes per thread stored because registers ran out."""
    s: float
    error: str | None
    status: str | None


class TargetReport(TypedDict):
    ok: bool
    kernels: dict[str, KernelReport]


class CompileReport(TypedDict):
    targets: dict[str, TargetReport]
    seconds: float
    cpu: float
    """CPU seconds."""
    died: NotRequired[bool]
    """A process gave no report, so another run may end differently."""


def report(status: str | None = None, error: str | None = None, seconds: float = 0.0) -> KernelReport:
    return KernelReport(shared=None, regs=None, spills=None, s=round(seconds, 4), error=error, status=status)


def target_report(kernels: dict[str, KernelReport]) -> TargetReport:
    return TargetReport(ok=all(kernel["status"] is None for kernel in kernels.values()), kernels=kernels)


ALTOGETHER = 2
"""CPU time for all kernels and targets of a candidate, as a multiple of that for one kernel."""


def most_seconds(one: float) -> float:
    """The timeout of a child that compiles, given the time for one kernel."""
    return ALTOGETHER * one + 30


async def cross_compile(
    sandbox: Sandbox,
    kernels: dict[str, dict[str, Any]],
    launches: list[dict[str, Any]],
    targets: list[str],
    seconds: float,
    label: str = "",
) -> CompileReport:
    """Compile what was launched, of `kernels` as text, each for each target within `seconds` of CPU time.

    If a kernel crashes the compiler or never returns, the kernels are retried one at a time to find it.
    """
    request: dict[str, Any] = {
        "kernels": kernels,
        "launches": launches,
        "targets": targets,
        "seconds": seconds,
    }
    request["label"] = label
    # The process that compiles imports no plug-in.
    request["own_targets"] = {one: TARGETS.find(one)._asdict() for one in targets if TARGETS.origin(one)}
    names = list(dict.fromkeys(str(launch["kernel"]) for launch in launches))
    reply = await sandbox.run(request)
    if reply["kind"] == "ok":
        return _checked(reply, targets, names)
    total = CompileReport(targets={}, seconds=reply["seconds"], cpu=reply["cpu"], died=True)
    late = False
    for target in targets:
        reports: dict[str, KernelReport] = {}
        for name in names:
            if late:  # one timeout is enough to know, and each takes long
                reports[name] = report("UNSUPPORTED", "not tried: another kernel took all of the time")
                continue
            its_own = [launch for launch in launches if launch["kernel"] == name]
            one = await sandbox.run(request | {"launches": its_own, "targets": [target], "loud": True})
            total["seconds"] += one["seconds"]
            total["cpu"] += one["cpu"]
            late = one["kind"] == "timeout"
            if one["kind"] == "ok":
                checked = _checked(one, [target], [name])
                reports[name] = checked["targets"][target]["kernels"][name]
            else:
                reports[name] = blame(one)
        total["targets"][target] = target_report(reports)
    total["seconds"] = round(total["seconds"], 4)
    return total


def blame(reply: Reply) -> KernelReport:
    """Blame the kernel that a child was compiling when it gave no report."""
    if reply["kind"] == "crashed" and reply["message"].startswith("the server"):  # not the kernel's fault
        return report("INFRA_ERROR", clean(reply["message"]), reply["seconds"])
    if reply["kind"] == "timeout":
        return report("TIMEOUT", "the compiler took all of the time for one kernel", reply["seconds"])
    if (
        reply["kind"] == "error"
    ):  # our fault or the request's: the worker turns every error of the candidate into a report
        return report("INFRA_ERROR", clean(f"{reply['type']}: {reply['message']}"), reply["seconds"])
    if reply["kind"] == "out_of_memory":
        return report("COMPILE_ERROR", "the compiler ran out of memory", reply["seconds"])
    said = diagnostics(reply["output"])
    return report(
        "COMPILE_ERROR", clean(f"the compiler's process died: {reply['message']}\n{said}"), reply["seconds"]
    )


def _checked(reply: Reply, targets: list[str], names: list[str]) -> CompileReport:
    """Validate a child's answer, which untrusted code may have written, against the request."""
    try:
        result = reply["result"]
        found = {
            target: target_report(
                {name: _checked_kernel(result["targets"][target]["kernels"][name]) for name in names}
            )
            for target in targets
        }
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError):
        forged = report("COMPILE_ERROR", "its process gave an answer that is not the compiler's")
        found = {target: target_report(dict.fromkeys(names, forged)) for target in targets}
    return CompileReport(targets=found, seconds=round(reply["seconds"], 4), cpu=reply["cpu"])


def _checked_kernel(kernel: dict[str, Any]) -> KernelReport:
    status, error = kernel["status"], kernel["error"]
    if (status is None) != (error is None) or status not in (None, *_STATUSES):
        raise ValueError(f"status {status!r}")
    return KernelReport(
        shared=_number(kernel["shared"]),
        regs=_number(kernel["regs"]),
        spills=_number(kernel["spills"]),
        s=float(kernel["s"]),
        error=None if error is None else str(error)[:MAX_ERROR],
        status=status,
    )


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def programs(host_compiler: bool = False) -> list[str]:
    """The programs that a compile runs, for `Sandbox(programs=...)`: the assemblers bundled with Triton.

    With `host_compiler`, also those needed on a machine with a GPU: the C compiler and the programs it runs,
    with which Triton builds its launchers, and the assembler bundled with torch, which torch.compile prefers.
    """
    found = [_folder("triton") / path for vendor in VENDORS for path in vendor.assemblers]
    if host_compiler:
        found += [_folder("torch") / path for vendor in VENDORS for path in vendor.torch_assemblers]
        found += map(Path, _host_compiler())
    return sorted({os.path.realpath(program) for program in found if program.exists()})


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"{package} is not installed")
    return Path(spec.origin).parent


def _host_compiler() -> list[str]:
    for name in ("gcc", "cc", "clang"):
        # Search where a child would: it has no other path.
        if (compiler := shutil.which(name, path=CHILD_PATH)) is not None:
            break
    else:
        return []
    asked = [
        subprocess.run([compiler, f"-print-prog-name={part}"], capture_output=True, text=True, check=True)
        for part in ("cc1", "collect2", "as", "ld")
    ]
    parts = [shutil.which(run.stdout.strip(), path=CHILD_PATH) for run in asked]
    return [compiler, *(part for part in parts if part is not None)]


def over_limit(
    target: Target, shared: int, threads: int, registers: int | None, tensor_memory: int | None
) -> str | None:
    """Why a compiled kernel cannot be launched, in Triton's wording; None if it can."""
    for what, needed, limit in (
        ("shared memory", shared, target.shared),
        ("threads", threads, target.threads),
        ("registers", (registers or 0) * threads, target.registers),
        ("tensor memory", tensor_memory or 0, target.tensor_memory),
    ):
        if needed > limit:
            return f"out of resource: {what}, Required: {needed}, Hardware limit: {limit}."
    return None


def diagnostics(text: str) -> str:
    """The lines of a compiler's output that say what is wrong. It prints the whole program beside them."""
    lines = [
        line for line in text.splitlines() if re.search(r"\b(error|fatal|assertion)\b", line, re.IGNORECASE)
    ]
    return "\n".join(dict.fromkeys(line.strip()[:400] for line in lines[:5]))


def clean(text: str) -> str:
    """A compiler's message without this machine's paths and temporary file names, cut to `MAX_ERROR`."""
    text = re.sub(r"\n*Repro command:.*", "", text)
    roots = {sys.prefix, sys.base_prefix, tempfile.gettempdir(), os.path.expanduser("~"), os.getcwd()}
    roots |= {os.path.realpath(root) for root in roots}
    known = "|".join(re.escape(root) for root in sorted(roots - {"/"}, key=len, reverse=True))
    # Paths of this machine and of the one that built the compiler. At least two folders, or it may be a
    # division.
    text = re.sub(rf"(?:{known})(?:/[\w.@+-]+)*/(?=[\w.@+-])", "", text)
    text = re.sub(r"(?<![^\s\"'`(=])/(?:[\w.@+-]+/){2,}(?=[\w.@+-])", "", text)
    text = re.sub(r"\btmp\w{8}\.ptx", "kernel.ptx", text).strip()
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 4] + "\n..."
