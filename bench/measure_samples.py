"""Measure the candidates of data/samples: is each one right, and how fast is it next to eager PyTorch?

    python3 bench/measure_samples.py --device cuda --jobs 6 --out measured.json
    python3 bench/measure_samples.py --device cpu --cap 32                        # correctness only

Needs the standard library, torch and triton, nothing else. Every candidate runs in a fresh child process
with a time limit. One JSON row a candidate goes to standard output as it is known, and all of them, with the
date, the device and the versions, to `--out`.

Right means: on five seeds of zero-mean inputs, with parameters moved away from their initial values and
`torch.empty` poisoned with NaN, the relative L2 error against an fp64 run of the reference is at most
max(4 times eager's own error, a floor for the dtype), shape and dtype agree, and the inputs are untouched.

Time is device time: a spin kernel holds the stream back while the host enqueues the call, so Python's launch
overhead is not in it. Median of 50, eager and candidate in turn, four sets of inputs, 128 MB written between
calls to empty the L2 cache. TF32 is off for both sides. Other children may check, but none uses the device
while one is timed.

On the CPU the kernels run in Triton's interpreter at shrunk sizes. That sees neither compile errors nor shared
memory that runs out nor speed: a candidate can be correct there and fail on a GPU.

What this does not do: resist a candidate that means to cheat. These were written for the sample; for
candidates from a model use the package's evaluator.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fcntl
import importlib.util
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "data" / "samples"))

import sample_files  # noqa: E402

SEEDS = (101, 202, 303, 404, 505)
TIMED_SEEDS = (11, 12, 13, 14)
TIMED_CALLS = 50
FLUSH_BYTES = 128 << 20
FLOORS = {"torch.float32": 1e-5, "torch.float16": 1e-3, "torch.bfloat16": 8e-3}
BATCH_NAME = re.compile(r"^(batch(_?size)?|bs|b|batch_dim)$", re.IGNORECASE)
COMPILE_ERRORS = {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "PTXASError",
}


class CandidateFailure(Exception):
    """The candidate is not correct: a status and one line of detail."""

    def __init__(self, status: str, detail: str) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


def shrink(source: str, cap: int) -> str:
    """Cap the integers assigned at a module's top level: batch-like names at 2, all others at `cap`."""
    tree = ast.parse(source)
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        if isinstance(node.value, ast.Constant) and type(node.value.value) is int:
            limit = 2 if BATCH_NAME.match(node.targets[0].id) else cap
            node.value = ast.Constant(min(node.value.value, limit))
    return ast.unparse(ast.fix_missing_locations(tree))


def import_source(source: str, name: str, folder: Path) -> types.ModuleType:
    """Import source from a file of its own: Triton reads a kernel's text from its file."""
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def blame_candidate() -> Iterator[None]:
    """Turn whatever the candidate's own code raises into a CandidateFailure; the harness's errors stay errors."""
    try:
        yield
    except CandidateFailure:
        raise
    except Exception as error:
        chain: list[BaseException] = [error]
        while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
            chain.append(cause)
        names = {type(link).__name__ for link in chain}
        compiling = bool(names & COMPILE_ERRORS) or isinstance(error, SyntaxError)
        text = " ".join(str(error).split()) or " ".join(str(chain[-1]).split())
        raise CandidateFailure(
            "compile_error" if compiling else "crash", f"{type(error).__name__}: {text[-400:]}"
        ) from error


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill what `torch.empty` and its kin return, so that an element nobody writes cannot look right."""
    import torch

    def poisoning(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            tensor = make(*args, **kwargs)
            return tensor.fill_(float("nan") if tensor.is_floating_point() else 77)

        return made

    places = [(torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty")]
    kept = [getattr(place, name) for place, name in places]
    try:
        for (place, name), make in zip(places, kept, strict=True):
            setattr(place, name, poisoning(make))
        yield
    finally:
        for (place, name), make in zip(places, kept, strict=True):
            setattr(place, name, make)


class DeviceLock:
    """Many may check, one may time: file locks, with a gate so that a timing is not kept waiting for ever."""

    def __init__(self, folder: Path) -> None:
        self.gate = os.open(folder / "gate.lock", os.O_RDWR | os.O_CREAT)
        self.device = os.open(folder / "device.lock", os.O_RDWR | os.O_CREAT)
        self.waited_s = 0.0

    @contextlib.contextmanager
    def hold(self, *, alone: bool) -> Iterator[None]:
        start = time.perf_counter()
        fcntl.flock(self.gate, fcntl.LOCK_EX)
        fcntl.flock(self.device, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        self.waited_s += time.perf_counter() - start
        try:
            yield
        finally:
            fcntl.flock(self.device, fcntl.LOCK_UN)


def zero_mean_inputs(reference: types.ModuleType, seed: int, device: str) -> list[Any]:
    """The module's inputs with floating ones drawn anew from the unit normal; integers and masks as they are."""
    import torch

    torch.manual_seed(seed)
    drawn = reference.get_inputs()
    return [
        (torch.randn(x.shape).to(x.dtype) if x.is_floating_point() else x).to(device)
        if isinstance(x, torch.Tensor)
        else x
        for x in drawn
    ]


def build(module: types.ModuleType, class_name: str, reference: types.ModuleType, device: str) -> Any:
    import torch

    torch.manual_seed(0)
    args, kwargs = reference.get_init_inputs()
    torch.manual_seed(0)
    return getattr(module, class_name)(*args, **kwargs).to(device)


def relative_error(result: Any, exact: Any) -> float:
    import torch

    norm = torch.linalg.vector_norm(exact).item()
    return float(torch.linalg.vector_norm(result.double() - exact).item() / max(norm, 1e-30))


def check(eager: Any, candidate: Any, oracle: Any, inputs: list[Any], seed: int) -> float:
    """Compare one call with the fp64 oracle; the candidate's error, or a CandidateFailure."""
    import torch

    expected = eager(*inputs)
    exact = oracle(
        *[x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
    )
    given = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with blame_candidate(), poisoned_memory():
        result = candidate(*given)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    if not isinstance(result, torch.Tensor):
        raise CandidateFailure("incorrect", f"returned a {type(result).__name__}, expected a tensor")
    if result.shape != expected.shape or result.dtype != expected.dtype:
        raise CandidateFailure(
            "incorrect",
            f"returned {tuple(result.shape)} {result.dtype}, expected {tuple(expected.shape)} {expected.dtype}",
        )
    if any(isinstance(x, torch.Tensor) and not torch.equal(x, y) for x, y in zip(inputs, given, strict=True)):
        raise CandidateFailure("incorrect", "changed its inputs")
    bad = int((~torch.isfinite(result)).sum().item())
    if bad:
        raise CandidateFailure(
            "incorrect", f"{bad} of {result.numel()} elements are not finite (seed {seed})"
        )
    error = relative_error(result, exact)
    bound = max(4 * relative_error(expected, exact), FLOORS[str(expected.dtype)])
    if not error <= bound:
        raise CandidateFailure(
            "incorrect", f"relative L2 error {error:.3g} is over {bound:.3g} (seed {seed})"
        )
    return error


def time_both(eager: Any, candidate: Any, sets: list[list[Any]]) -> tuple[float, float]:
    """Median device time of a call in microseconds: eager, candidate."""
    import torch

    host_s = 0.0
    start = time.perf_counter()
    calls = 0
    while calls < 8 or time.perf_counter() - start < 0.3:
        for model in (eager, candidate):
            torch.cuda.synchronize()
            before = time.perf_counter()
            model(*sets[calls % len(sets)])
            # The first calls compile and fill caches; what counts is how long a warm call takes to enqueue.
            host_s = max(host_s, time.perf_counter() - before) if calls >= 4 else 0.0
        calls += 1
    # No clock of these devices passes 2 GHz, so this many cycles last at least twice the enqueueing.
    spin_cycles = int(min(2 * host_s + 2e-4, 0.02) * 2e9)
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")

    def one(model: Any, inputs: list[Any]) -> tuple[Any, Any]:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        torch.cuda._sleep(spin_cycles)
        begin.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        return begin, end

    events: dict[str, list[tuple[Any, Any]]] = {"eager": [], "candidate": []}
    for call in range(TIMED_CALLS):
        pair = [("eager", eager), ("candidate", candidate)]
        for name, model in pair if call % 2 == 0 else reversed(pair):
            events[name].append(one(model, sets[call % len(sets)]))
    medians = [
        statistics.median(b.elapsed_time(e) * 1e3 for b, e in events[n]) for n in ("eager", "candidate")
    ]
    return medians[0], medians[1]


def measure(folder: str, number: int, device: str, cap: int, scratch: Path) -> dict[str, Any]:
    """The child's work: one candidate, checked and (on a GPU) timed."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1 if device == "cpu" else 4)
    lock = DeviceLock(scratch)
    text = sample_files.read_reference(folder)
    code = sample_files.read_candidate(folder, number).code
    row: dict[str, Any] = {
        "status": "correct",
        "detail": "",
        "eager_us": None,
        "candidate_us": None,
        "speedup": None,
    }
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        home = Path(name)
        reference = import_source(
            shrink(text.source, cap) if device == "cpu" else text.source, "sample_reference", home
        )
        try:
            with lock.hold(alone=False):
                eager = build(reference, text.class_name, reference, device)
                generator = torch.Generator().manual_seed(7)
                for parameter in eager.parameters():
                    noise = torch.randn(parameter.shape, generator=generator).to(device)
                    parameter.mul_(1 + 0.2 * noise).add_(0.02 * noise.flip(0))
                oracle = build(reference, text.class_name, reference, device)
                oracle.load_state_dict(eager.state_dict())
                oracle.double()
                with blame_candidate():
                    module = import_source(code, "sample_candidate", home)
                    candidate = build(module, f"{text.class_name}New", reference, device)
                    candidate.load_state_dict(eager.state_dict(), strict=True)
                errors = [
                    check(eager, candidate, oracle, zero_mean_inputs(reference, seed, device), seed)
                    for seed in SEEDS
                ]
                row["detail"] = f"largest relative L2 error {max(errors):.3g}"
                sets = (
                    [zero_mean_inputs(reference, seed, device) for seed in TIMED_SEEDS]
                    if device == "cuda"
                    else []
                )
            if device == "cuda":
                with lock.hold(alone=True), blame_candidate():
                    eager_us, candidate_us = time_both(eager, candidate, sets)
                row["eager_us"] = round(eager_us, 2)
                row["candidate_us"] = round(candidate_us, 2)
                row["speedup"] = round(eager_us / candidate_us, 4)
        except CandidateFailure as failure:
            row["status"], row["detail"] = failure.status, failure.detail
    row["waited_s"] = lock.waited_s
    return row


def run_child(folder: str, number: int, options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Measure one candidate in a child process; a child that dies or overruns is a row, not an error."""
    reference, candidate = sample_files.read_reference(folder), sample_files.read_candidate(folder, number)
    result = scratch / f"{folder}-{number}.json"
    command = [
        sys.executable,
        __file__,
        "--child",
        folder,
        str(number),
        str(result),
        "--scratch",
        str(scratch),
    ]
    command += ["--device", options.device, "--cap", str(options.cap)]
    environment = dict(os.environ)
    environment.pop("TRITON_INTERPRET", None)
    if options.device == "cpu":
        environment["TRITON_INTERPRET"] = "1"
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, log = child.communicate(timeout=options.limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        measured: dict[str, Any] = {"status": "timeout", "detail": f"not done after {options.limit:g} s"}
    else:
        if result.exists():
            measured = json.loads(result.read_text(encoding="utf-8"))
        elif child.returncode < 0:
            measured = {
                "status": "crash",
                "detail": f"the process ended by {signal.Signals(-child.returncode).name}",
            }
        else:
            raise RuntimeError(f"measuring {folder} candidate {number} failed in the harness:\n{log}")
    waited_s = measured.pop("waited_s", 0.0)
    return {
        "module": folder,
        "candidate": number,
        "status": measured["status"],
        "detail": measured["detail"],
        "eager_us": measured.get("eager_us"),
        "candidate_us": measured.get("candidate_us"),
        "speedup": measured.get("speedup"),
        "scoring_ms": round((time.perf_counter() - start - waited_s) * 1e3, 1),
        "module_sha256": sample_files.sha256(reference.source),
        "code_sha256": sample_files.sha256(candidate.code),
    }


def describe(device: str) -> dict[str, Any]:
    import torch
    import triton

    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device here: use --device cpu for correctness alone")

    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "device": torch.cuda.get_device_name()
        if device == "cuda"
        else "cpu (Triton interpreter, shrunk sizes)",
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            "torch": str(torch.__version__),
            "triton": str(triton.__version__),
            "cuda": torch.version.cuda,
        },
    }


def write_json(path: Path, document: Any) -> None:
    """Write to a temporary file and rename, so that a run which is cut short leaves a whole file."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, help="write the date, the device, the versions and all rows here")
    parser.add_argument(
        "--jobs", type=int, default=1, help="candidates checked at once; timing is one at a time"
    )
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one candidate")
    parser.add_argument("--cap", type=int, default=32, help="on the CPU: the largest module-level integer")
    parser.add_argument("--only", action="append", default=[], metavar="MODULE[:N]", help="may be repeated")
    parser.add_argument("--child", nargs=3, metavar=("MODULE", "N", "RESULT"), help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.child:
        folder, number, result = options.child
        write_json(Path(result), measure(folder, int(number), options.device, options.cap, options.scratch))
        return 0
    work = [(folder, number) for folder in sample_files.folders() for number in sample_files.CANDIDATES]
    if options.only:
        work = [(f, n) for f, n in work if f in options.only or f"{f}:{n}" in options.only]
    if not work:
        print(f"no candidate matches --only {' '.join(options.only)}", file=sys.stderr)
        return 2
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    header = describe(options.device)
    writing = threading.Lock()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(options.jobs) as pool:

        def one(item: tuple[str, int]) -> None:
            row = run_child(*item, options, Path(name))
            with writing:
                rows[item] = row
                print(json.dumps(row, ensure_ascii=False), flush=True)
                if options.out:
                    write_json(options.out, {**header, "rows": [rows[item] for item in work if item in rows]})

        list(pool.map(one, work))
    counts = {
        status: sum(row["status"] == status for row in rows.values())
        for status in ("correct", "incorrect", "compile_error", "crash", "timeout")
    }
    print(json.dumps({"candidates": len(rows), **counts}), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
