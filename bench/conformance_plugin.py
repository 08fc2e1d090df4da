"""A pytest plugin for `interpreter_conformance.py`: Triton's tests in the stock interpreter or in ours, each test in a forked child.

It is loaded by `-p`, before the test modules are imported. Each child has a process group and a time limit of its own; what became of it is a line of
JSON. Set by the environment, because pytest reads no options of a plugin before it loads it:

    CONFORMANCE_SIDE      "stock" or "ours"
    CONFORMANCE_RECORDS   the file for the lines
    CONFORMANCE_PART      "NUMBER/OF": which of the tests, by a hash of their names
    CONFORMANCE_SAMPLE    every N-th test, by the same hash
    CONFORMANCE_MOST      at most so many cases of one test function, those with the lowest hashes; 0 for all
    CONFORMANCE_LIMIT     seconds for a test

What both sides get, because the tests ask for it: a Triton driver, a compute capability, and scipy's Kolmogorov-Smirnov statistic where there is no
scipy. Kernels that test_core.py makes of a template (`patch_kernel`) get a file: it would define them by exec(), which the compiler rejects and ours does,
too. A test that skips itself because of the interpreter is run all the same, and its line says so.

Triton's tests put their tensors on the CPU, which here counts as the GPU: no memory is marked as the host's. Ours runs as it does for a candidate, with
the observer on (but uninitialised memory is not poisoned), so a line also has what was observed.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import resource
import runpy
import select
import signal
import sys
import tempfile
import textwrap
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.testing
from _pytest.runner import runtestprotocol
from triton.runtime import jit
from triton.runtime.errors import InterpreterError

from kernelmill.evaluate.fake_gpu import driver, host

SIDE = os.environ["CONFORMANCE_SIDE"]
OURS = SIDE == "ours"
if OURS:
    from kernelmill.evaluate import interpreter
RECORDS = Path(os.environ["CONFORMANCE_RECORDS"])
PART, PARTS = map(int, os.environ["CONFORMANCE_PART"].split("/"))
SAMPLE = int(os.environ["CONFORMANCE_SAMPLE"])
MOST = int(os.environ["CONFORMANCE_MOST"])
LIMIT = float(os.environ["CONFORMANCE_LIMIT"])
MEMORY = 12 << 30
ERROR_LENGTH = 300
KERNELS = tempfile.TemporaryDirectory(prefix="conformance-kernels-")
OWN_TEST = "06-fused-attention.py"
"""The only tutorial with a test; the others are scripts that check themselves."""

_skip, _raises = pytest.skip, pytest.raises


class _Noted:
    """What the running test has done; a child has its own."""

    lifted = False
    other_exception = False
    compiled = False
    error: dict[str, Any] | None = None


noted = _Noted()


class _CpuDriver(driver.Driver):
    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")


def _install() -> None:
    if OURS:
        interpreter.install()
        # Triton's tests ask for the variable that ours hides, to leave out what only a compiler has.
        os.environ["TRITON_INTERPRET"] = "1"
        host.mark = lambda tensor, host: None
    else:
        triton.runtime.driver.set_active(_CpuDriver())
        torch.cuda.get_device_capability = lambda *args: (9, 0)
        jit.JITFunction._do_compile = _noted_compile(jit.JITFunction._do_compile)
    torch.set_num_threads(1)
    try:
        import scipy.stats  # noqa: F401
    except ModuleNotFoundError:
        package, stats = types.ModuleType("scipy"), types.ModuleType("scipy.stats")
        package.stats, stats.kstest = stats, _kstest  # type: ignore[attr-defined]
        sys.modules |= {"scipy": package, "scipy.stats": stats}
    pytest.skip = _skip_unless_interpreter
    pytest.raises = _raises_noted


def _noted_compile(do_compile: Callable[..., Any]) -> Callable[..., Any]:
    """A test that resets Triton's settings (`fresh_knobs`) leaves the interpreter: its kernels are compiled."""

    def noted_compile(*args: Any, **kwargs: Any) -> Any:
        noted.compiled = True
        return do_compile(*args, **kwargs)

    return noted_compile


def _kstest(sample: Any, distribution: str, args: tuple[float, float]) -> Any:
    """The statistic of a sample against the uniform distribution between 0 and 1."""
    assert (distribution, args) == ("uniform", (0, 1))
    values, n = np.sort(np.asarray(sample, dtype=np.float64)), len(sample)
    steps = np.arange(n + 1) / n
    return types.SimpleNamespace(statistic=max((steps[1:] - values).max(), (values - steps[:-1]).max()))


def _skip_unless_interpreter(reason: str = "", **more: Any) -> None:
    if "in the interpreter" not in reason:
        _skip(reason, **more)
    noted.lifted = True


_skip_unless_interpreter.Exception = _skip.Exception  # type: ignore[attr-defined]


def _raises_noted(expected: Any = None, *args: Any, **kwargs: Any) -> Any:
    wrapped = isinstance(expected, type) and issubclass(InterpreterError, expected)
    if wrapped and expected not in (Exception, BaseException) and not args:
        return _interpreter_error(expected, **kwargs)
    return _raises(*(() if expected is None else (expected,)), *args, **kwargs)


@contextlib.contextmanager
def _interpreter_error(expected: Any, match: str | None = None, **kwargs: Any) -> Iterator[Any]:
    """pytest.raises(InterpreterError), noting if the exception is only of another class: ours does not wrap them."""
    with _raises(expected, match=match, **kwargs) as found:
        try:
            yield found
        except expected:
            raise
        except Exception as error:
            noted.other_exception = re.search(match or "", str(error)) is not None
            raise


def _patched_kernel(module: Any) -> Callable[[Any, dict[str, str]], Any]:
    """Triton's helper for its tests, with a file for the source. The child's folder goes with the run."""

    def patch_kernel(template: Any, replace: dict[str, str]) -> Any:
        source = textwrap.dedent(inspect.getsource(template.fn))
        for old, new in replace.items():
            source = source.replace(old, new)
        with tempfile.NamedTemporaryFile("w", suffix=".py", dir=KERNELS.name, delete=False) as file:
            file.write(source)
        found: dict[str, Any] = {}
        exec(compile(source, file.name, "exec"), vars(module), found)
        return found[template.fn.__name__]

    return patch_kernel


class TutorialFile(pytest.File):
    def collect(self) -> Iterator[Any]:
        yield TutorialItem.from_parent(self, name="script")


class TutorialItem(pytest.Item):
    """A tutorial as a script, without its measurements."""

    def runtest(self) -> None:
        nothing = types.SimpleNamespace(run=lambda *args, **kwargs: None)
        triton.testing.perf_report = lambda benchmarks: lambda function: nothing
        sys.argv = [str(self.path)]
        runpy.run_path(str(self.path), run_name="__main__")


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    if module_path.parent.name == "tutorials" and module_path.name != OWN_TEST:
        return TutorialFile.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    numbers = {item.nodeid: zlib.crc32(item.nodeid.encode()) for item in items}
    functions: dict[str, list[int]] = {}
    for name, number in numbers.items():
        if number % SAMPLE == 0:
            functions.setdefault(name.split("[")[0], []).append(number)
    chosen = {name: set(sorted(cases)[: MOST or None]) for name, cases in functions.items()}
    for module in {item.module for item in items if hasattr(item, "module")}:
        if hasattr(module, "patch_kernel"):
            module.patch_kernel = _patched_kernel(module)
    _write({"collected": len(items), "chosen": sum(map(len, chosen.values()))})
    items[:] = [
        item
        for item in items
        if (number := numbers[item.nodeid]) in chosen.get(item.nodeid.split("[")[0], ())
        and number // SAMPLE % PARTS == PART
    ]


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        _write({"id": report.nodeid, "outcome": "not collected", "error": _last_line(str(report.longrepr))})


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    if call.excinfo is not None and noted.error is None:
        noted.error = _described(call.excinfo.value)
    yield


def _described(error: BaseException) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    inner = [f for f in frames if "/kernelmill/" in f.filename or "/triton/" in f.filename]
    text = str(error).strip()
    cause = error.__cause__ or error.__context__
    if not text and isinstance(error, InterpreterError) and cause is not None:
        error, text = cause, str(cause).strip()
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not line and frames:
        line = frames[-1].line or ""
    return {
        "error": f"{type(error).__name__}: {line}"[:ERROR_LENGTH],
        "at": " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(inner[-2:])),
        "line": next((f.lineno for f in reversed(frames) if Path(f.filename).name.startswith("test_")), None),
        "unsupported": interpreter.is_unsupported(error) if OURS else None,
    }


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line[1:].strip() for line in lines if line.startswith("E ")]
    return (errors or lines or [""])[-1][:ERROR_LENGTH]


def pytest_runtest_protocol(item: Any, nextitem: Any) -> bool:
    started = time.monotonic()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run_child(item, write)
    os.close(write)
    text = _read_until(read, started + LIMIT)
    if text is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if text is None:
        record = {"outcome": "time limit", "error": f"more than {LIMIT:g} seconds"}
    elif not text:
        record = {
            "outcome": "crashed",
            "error": f"the process ended with {os.waitstatus_to_exitcode(status)}",
        }
    else:
        record = json.loads(text)
    marked = item.get_closest_marker("interpreter") is not None
    seconds = round(time.monotonic() - started, 3)
    _write({"id": item.nodeid, "marked": marked, "seconds": seconds, **record})
    return True


def _write(record: dict[str, Any]) -> None:
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def _read_until(read: int, deadline: float) -> str | None:
    """What comes from a pipe until it is closed, or None if it is still open at the deadline."""
    pieces = []
    try:
        while True:
            ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            piece = os.read(read, 1 << 16)
            if not piece:
                return b"".join(pieces).decode()
            pieces.append(piece)
    finally:
        os.close(read)


def _run_child(item: Any, write: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    observed: dict[str, Any] = {}
    if OURS:
        interpreter.observer.begin(poison=False)
    try:
        reports = runtestprotocol(item, nextitem=None, log=False)
        if OURS:
            seen = interpreter.observer.end()
            observed = {
                "out_of_bounds": seen.oob_count,
                "races": seen.race_count,
                "observed": [str(event) for event in [*seen.oob[:1], *seen.races[:1]]],
            }
        record = _record(reports) | {name: value for name, value in observed.items() if value}
    except BaseException as error:  # noqa: BLE001 - pytest's own failure, or an exit: it is this test's outcome
        record = {"outcome": "failed", "error": f"{type(error).__name__}: {error}"[:ERROR_LENGTH]}
    with os.fdopen(write, "w", encoding="utf-8") as pipe:
        json.dump(record, pipe)
    os._exit(0)


def _record(reports: list[Any]) -> dict[str, Any]:
    """One outcome for the setup, the call and the teardown of a test."""
    outcome, error = "passed", ""
    for report in reports:
        if report.failed:
            outcome, error = "failed", _last_line(report.longreprtext)
            break
        if report.skipped:
            outcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            error = getattr(report, "wasxfail", "") or str(report.longrepr[2])
    record: dict[str, Any] = {"outcome": outcome, "error": error}
    if outcome == "failed" and noted.error is not None:
        record |= noted.error
    if noted.lifted:
        record["lifted"] = True
    if noted.other_exception:
        record["other_exception"] = True
    if noted.compiled:
        record["compiled"] = True
    return record


_install()
