"""A worker for `kernelmill.sandbox`: compile the kernels that a candidate launched, for other GPUs.

The kernels are those of the candidate's program, as text: nothing else of the candidate is loaded, and nothing is
ever launched. The compiler evaluates parts of a kernel in Python, so call `handle` only in a sandboxed process, and
without TRITON_INTERPRET.

The request:

    {"kernels": their texts (`trace.kernel_text`), "targets": ["sm_90", ...], "seconds": 60,
     "launches": [{"kernel": qualified name, "signature": {argument: "*fp32", "i32", "constexpr", ...},
                   "constexprs": {argument: value}, "attrs": arguments divisible by 16,
                   "num_warps": 4, "num_stages": 3, "options": {...}, "config": its number, if autotuned}],
     "own_targets": {name: the fields of a `Target` that is not built in}, "loud": false}

The reply is a `CompileReport`. For several launches of one kernel it shows the first that fails, or else the
largest. A configuration that does not fit is not a failure if the autotuner, which skips it, has another that
fits. `loud` lets the compiler's native code print to the child's output, where its last lines can be read if
it crashes the child.

`seconds` of CPU time are for one kernel and one target. A kernel is a TIMEOUT only if it uses them up by
itself. All kernels together have `compiling.ALTOGETHER` times as much. Kernels left over after that are
UNSUPPORTED, because others took the time.

Sources are built as Triton's own launch builds them, and have the key that a launch on such a GPU looks up.
Launches with the same key are compiled once: those that differ only in the number of their configuration, or in
what the kernel is not specialised on. Triton's own cache is the folder `triton` in the child's scratch folder.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import triton
from triton import knobs
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.errors import OutOfResources, PTXASError

from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.compile.compiling import CompileReport, KernelReport, report, target_report
from kernelmill.evaluate.compile.source import NotBuildable, ProgramKernels, on, source_of
from kernelmill.evaluate.compile.targets import DEFAULT, TARGETS, Target
from kernelmill.evaluate.gpu_backends import BACKENDS
from kernelmill.evaluate.trace.kernel_text import NotTheLanguage

_WARM_UP = """
def warm_up(a, b, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    block = tl.load(a + at[:, None] * SIZE + at[None, :])
    tl.store(b + at, tl.sum(libdevice.tanh(tl.dot(block, block)), axis=1))
"""
_ITS_NAMES = {
    "tl": {"module": "triton.language"},
    "libdevice": {"module": "triton.language.extra.libdevice"},
}


class OutOfTime(BaseException):
    """The time for this kernel is used up. Not an Exception: the compiler blames those on the kernel."""


class _Budget:
    """CPU time of this process and of the assemblers it has run."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, _processor_time() + compiling.ALTOGETHER * seconds

    @property
    def whole(self) -> bool:
        """Whether at least the time for one kernel is left."""
        return self._end - _processor_time() >= self._seconds

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Raise OutOfTime when the time is used up.

        Native compiler code is interrupted only when it returns to Python.
        """

        def ring(number: int, frame: FrameType | None) -> None:
            raise OutOfTime

        before = signal.signal(signal.SIGPROF, ring)
        signal.setitimer(signal.ITIMER_PROF, max(min(self._seconds, self._end - _processor_time()), 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)


def _processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def prepare() -> None:
    """Do one-time work in the server: import, hash Triton's files, query the assembler's version."""
    if knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: kernels would be interpreted, not compiled")
    signature = {"a": "*fp32", "b": "*fp32", "SIZE": "constexpr"}
    launch = {"kernel": "warm_up", "signature": signature, "constexprs": {"SIZE": 16}}
    kernel = {"kind": "kernel", "name": "warm_up", "text": _WARM_UP, "uses": _ITS_NAMES, "options": {}}
    kernels = {"warm_up": kernel | {"line": 1, "module": ""}}
    found = handle({"kernels": kernels, "launches": [launch], "targets": [*DEFAULT], "seconds": 100})
    wrong = {name: of["kernels"] for name, of in found["targets"].items() if not of["ok"]}
    if wrong:
        raise RuntimeError(f"the compiler does not work here: {wrong}")
    shutil.rmtree(_cache())


def handle(request: dict[str, Any]) -> CompileReport:
    began = time.monotonic()
    warnings.simplefilter("ignore")
    os.environ.update(TRITON_CACHE_DIR=str(_cache()), TRITON_HOME=tempfile.gettempdir())
    known = {**TARGETS, **{name: Target(**own) for name, own in request.get("own_targets", {}).items()}}
    unknown = [target for target in request["targets"] if target not in known]
    if unknown:
        raise ValueError(f"unknown targets {unknown}; known are {list(known)}")
    budget = _Budget(float(request.get("seconds", 60)))
    compiler = _Compiler(bool(request.get("loud")))
    launches: dict[str, dict[str, dict[str, Any]]] = {}
    for launch in request["launches"]:
        launches.setdefault(launch["kernel"], {})[json.dumps(launch, sort_keys=True)] = launch
    texts = ProgramKernels(request["kernels"], tempfile.gettempdir())
    targets = {
        target: target_report(
            {
                name: _merged(
                    [_compiled(texts, one, known[target], budget, compiler) for one in its_own.values()]
                )
                for name, its_own in launches.items()
            }
        )
        for target in request["targets"]
    }
    return CompileReport(targets=targets, seconds=round(time.monotonic() - began, 4), cpu=_processor_time())


def _cache() -> Path:
    return Path(tempfile.gettempdir()) / "triton"


@dataclass
class _Attempt:
    """One compiled launch. `skipped`: the autotuner tolerates this failure."""

    report: KernelReport
    autotuned: bool
    skipped: bool = False


class _Compiler:
    """Compiles for one request, every specialisation once for every target."""

    def __init__(self, loud: bool) -> None:
        self.loud = loud
        self._outcomes: dict[tuple[object, ...], KernelReport | Exception] = {}

    def compile(self, kernels: ProgramKernels, launch: dict[str, Any], target: Target) -> KernelReport:
        """Raises what Triton raises, also for a specialisation that has failed before."""
        gpu = BACKENDS[target.backend].target(target.arch)
        with on(gpu):
            source, options = source_of(launch, kernels, gpu)
            # Not only Triton's key: it takes kernels of the same text and different names for one.
            key = (target, source.name, source.hash(), repr(sorted(options.items())))
            if key not in self._outcomes:
                try:
                    self._outcomes[key] = _compiled_source(source, options, target)
                except (OSError, MemoryError):
                    raise  # of this machine, at this moment
                except Exception as error:  # noqa: BLE001  an outcome, which the caller tells apart
                    self._outcomes[key] = error
        outcome = self._outcomes[key]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome.copy()


def _compiled(
    kernels: ProgramKernels, launch: dict[str, Any], target: Target, budget: _Budget, compiler: _Compiler
) -> _Attempt:
    """Compile the kernel of a launch."""
    began, whole = time.monotonic(), budget.whole
    attempt = _Attempt(report("UNSUPPORTED", "no time was left"), launch.get("config") is not None)
    with tempfile.TemporaryFile() as diagnostics:
        try:
            quiet = contextlib.nullcontext() if compiler.loud else _errors_to(diagnostics.fileno())
            with budget.one(), quiet:
                attempt.report = compiler.compile(kernels, launch, target)
                attempt.skipped = attempt.report["status"] is not None
        except OutOfTime:
            late = "TIMEOUT", "the compiler took all of the time for one kernel"
            attempt.report = report(*(late if whole else ("UNSUPPORTED", "no time was left for it")))
        except NotBuildable as error:
            attempt.report = report("UNSUPPORTED", f"{compiling.NOT_BUILDABLE}: {error}")
        except NotTheLanguage as error:
            attempt.report = report("COMPILE_ERROR", str(error))
        except OutOfResources as error:
            attempt.report, attempt.skipped = report("OUT_OF_RESOURCES", str(error)), True
            attempt.report["shared"] = error.required
        except PTXASError as error:
            status = "OUT_OF_RESOURCES" if BACKENDS[target.backend].ran_out(str(error)) else "COMPILE_ERROR"
            attempt.report, attempt.skipped = report(status, compiling.clean(str(error))), True
        except CompilationError as error:
            attempt.report = report("COMPILE_ERROR", compiling.clean(_located(error, kernels)))
            attempt.skipped = isinstance(error, CompileTimeAssertionFailure)
        except (OSError, MemoryError):
            raise  # a problem of this machine, not of the kernel
        except Exception as error:  # noqa: BLE001  any compiler failure is a result
            diagnostics.seek(0)
            said = compiling.diagnostics(diagnostics.read().decode("utf-8", "replace"))
            words = compiling.clean(f"{type(error).__name__}: {error}\n{said}")
            attempt.report = report("COMPILE_ERROR", words)
    attempt.report["s"] = round(time.monotonic() - began, 4)
    return attempt


def _compiled_source(source: ASTSource, options: dict[str, Any], target: Target) -> KernelReport:
    backend = BACKENDS[target.backend]
    gpu = backend.target(target.arch)
    log = io.StringIO()
    backend.log_usage()
    with contextlib.redirect_stdout(log), backend.stopped_when_too_big(target.shared):
        compiled = triton.compile(source, target=gpu, options=options)
    found, about = report(), compiled.metadata
    found["shared"] = about.shared
    found["regs"], found["spills"] = backend.usage(log.getvalue())
    threads = about.num_warps * gpu.warp_size
    found["error"] = compiling.over_limit(target, about.shared, threads, found["regs"], about.tmem_size)
    found["status"] = None if found["error"] is None else "OUT_OF_RESOURCES"
    return found


def _merged(attempts: list[_Attempt]) -> KernelReport:
    """Merge the reports of all launches of a kernel into one."""
    tuned = any(one.autotuned and one.report["status"] is None for one in attempts)
    fatal = [
        one.report
        for one in attempts
        if one.report["status"] is not None and not (tuned and one.autotuned and one.skipped)
    ]
    good = [one.report for one in attempts if one.report["status"] is None]
    shown = fatal[0] if fatal else max(good, key=lambda one: (one["shared"] or 0, one["regs"] or 0))
    seconds = sum(one.report["s"] for one in attempts)
    return KernelReport(**{**shown, "s": round(seconds, 4)})


def _located(error: CompilationError, kernels: ProgramKernels) -> str:
    """The compiler's message, with the line number converted from the function to the candidate's source."""
    chain = [error]
    while isinstance(chain[-1].__cause__, CompilationError):
        chain.append(chain[-1].__cause__)
    ours = [(line, one) for one in chain if one.src and (line := kernels.line_of(one.src)) is not None]
    if not ours:
        return str(chain[-1])
    first, where = ours[-1]
    words = str(where).partition("\n")[2] if hasattr(where.node, "lineno") else str(where)
    line = first + getattr(where.node, "lineno", 1) - 1
    inner = chain[-1]
    if inner is not where:  # in one of Triton's functions: keep the reason, not the excerpt
        words = f"{words}\n{inner.error_message or inner}"
    return f"line {line} of the candidate:\n{words}"


@contextlib.contextmanager
def _errors_to(fd: int) -> Iterator[None]:
    """Redirect what the compiler's native code prints on stderr to `fd`."""
    saved = os.dup(2)
    os.dup2(fd, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
