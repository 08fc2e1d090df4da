"""The judge of the GPU tiers: a worker for `kernelmill.sandbox` on one GPU. Companions run the candidates.

As in `judge.worker`, the candidate's code runs in a companion. Here the task has its original sizes and
tensors cross in GPU memory. With `timed`, the candidate's calls are timed alternately with the reference's,
with exclusive use of this GPU.

The server that forks judges never touches CUDA, because a context does not survive a fork. Creating a context
takes 0.2 s, and a machine creates them one after the other. So a judge serves many requests, as long as the
references it ran have changed nothing in its process. A candidate's process serves one request.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import random
import shutil
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch
import triton

from kernelmill.evaluate.gpu.baselines import measure_baselines
from kernelmill.evaluate.gpu.clock import KEPT_RESULTS
from kernelmill.evaluate.gpu.gpu_memory import memory_was_short
from kernelmill.evaluate.gpu.plan import EXCLUSIVE_S, TooSlowToTime
from kernelmill.evaluate.gpu.runtime import GpuCandidate, OnGpu
from kernelmill.evaluate.gpu.session import GpuHold, GpuSession
from kernelmill.evaluate.gpu.stopwatch import Stopwatch, bytes_of, most_kept
from kernelmill.evaluate.gpu_backends import backend_here
from kernelmill.evaluate.judge import candidate
from kernelmill.evaluate.judge.record import Limits, Record, Stop, record_failure
from kernelmill.evaluate.judge.tolerance import Policy
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.probes import battery
from kernelmill.evaluate.probes import on_gpu as gpu_probes
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.task.facts import Facts
from kernelmill.evaluate.task.reference import BadReference, Reference, load_reference
from kernelmill.sandbox import inside
from kernelmill.torch_calls.snapshot import TOOLS, TorchSnapshot

_MAX_LEFTOVER_BYTES = 64 << 20
"""Bytes on the GPU that a request may leave behind. A reference that keeps more ends its judge."""
_WARM_UP = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
def launch():
    x = torch.ones(5, 7, device="cuda")
    double[(3,)](x, torch.empty_like(x), x.numel(), BLOCK=16)
    torch.cuda.synchronize()
"""
_CUT = {"untimed": f"its exclusive use of the GPU was ended after {EXCLUSIVE_S:.0f} s"}
_BASELINE_SETS = 4
_MEMORY_IN_USE, _MEMORY_POLL_S, _MEMORY_WAIT_S = 0.05, 0.5, 5.0
"""A share of the memory, and seconds. Before exclusive use, wait until no more than this share is in use, or
until no more is freed."""
_ARCH_FILE = "capability"


class _Process:
    """What a server has prepared for its judges, and a judge's own state."""

    warm_cache: str
    before: TorchSnapshot | None = None
    """Torch and this project in a judge's process, before it ran a reference."""
    spent = False
    """Whether this judge must not serve again."""


_process = _Process()


def prepare() -> None:
    """Import modules and warm Triton's cache. Nothing here may start CUDA in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    offline_models.prepare()
    # Torch imports these lazily, and then replaces functions of its own.
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.compile_fx")
    backend_here().prepare_server()
    _process.warm_cache = os.path.abspath("warm_cache")
    os.mkdir(_process.warm_cache)
    os.environ["TRITON_CACHE_DIR"] = _process.warm_cache
    warm_up = candidate.warm_up(_WARM_UP)
    _in_a_process(lambda: _launch_once(warm_up))
    _compile_once(warm_up)


def readable() -> list[str]:
    """Extra paths that candidates may read: the warm cache."""
    return [_process.warm_cache]


def companion(end: socket.socket) -> None:
    warnings.simplefilter("ignore")
    _own_cache()
    candidate.serve(end, OnGpu(), GpuCandidate)


def handle(request: dict[str, Any], sockets: list[socket.socket]) -> dict[str, Any]:
    """Handle one request.

    `do` is judge (a `Record`, and times if requested), baseline (of a reference), or health.
    """
    warnings.simplefilter("ignore")
    new = _process.before is None
    if new:
        _own_cache()
        backend_here().start()
        _process.before = TorchSnapshot(TOOLS)
    if request.get("exclusive"):
        _wait_for_memory()
    if request["do"] == "health":
        return {
            "sum": float(torch.ones(1000, device="cuda").sum()),
            "device": torch.cuda.get_device_name(),
            "memory": torch.cuda.get_device_properties(0).total_memory,
        }
    if request["do"] == "baseline":
        _process.spent = True  # torch.compile leaves much state behind
        return _baseline(request)
    record = Record()
    times: dict[str, Any] = {}
    with record_failure(record):
        times = _judge(request, sockets, record, lambda: _reply(record, _CUT, new))
    inside.server.draft(None)
    _process.spent |= record.status == "TIMEOUT"  # a call that timed out may still be running
    return _reply(record, times, new)


def _reply(record: Record, times: dict[str, Any], new_judge: bool) -> dict[str, Any]:
    return dataclasses.asdict(record) | {"times": times, "new_judge": new_judge}


def _wait_for_memory() -> None:
    """Wait until earlier candidates' processes have freed their memory.

    They may outlive their judge's answer.
    """
    end = time.monotonic() + _MEMORY_WAIT_S
    free, total = torch.cuda.mem_get_info()
    while total - free > _MEMORY_IN_USE * total and time.monotonic() < end:
        before = free
        time.sleep(_MEMORY_POLL_S)
        free, _ = torch.cuda.mem_get_info()
        if free <= before:  # the rest belongs to the contexts of processes that stay
            return


def reusable() -> bool:
    """Whether earlier requests left nothing behind that could affect a later one."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = _process.before
    assert before is not None
    return not (before.changes() or _process.spent or torch.cuda.memory_allocated() > _MAX_LEFTOVER_BYTES)


def _judge(
    request: dict[str, Any],
    sockets: list[socket.socket],
    record: Record,
    so_far: Callable[[], dict[str, Any]],
) -> dict[str, Any]:
    limits, marks, timed = Limits(**request.get("limits", {})), _Marks(), bool(request.get("timed"))
    dice = random.Random(request["seed"])
    torch.cuda.reset_peak_memory_stats()
    hold = GpuHold(exclusive=request.get("suspect") == "reference")
    with closing(_reference(request, hold)) as reference:
        marks("begun")
        facts = reference.examine(dice.getrandbits(31))
        marks("reference")
        record.task = {"version": "original", "gpu": torch.cuda.get_device_name(), "marks": marks.seconds}
        if facts.oracle_note:
            record.task["oracle"] = facts.oracle_note
        if facts.no_answer:
            raise Stop("UNSUPPORTED", facts.no_answer)
        session = GpuSession(sockets[0], record, limits, inside.companions[0])
        session.policy, session.hold = Policy(tf32=bool(request.get("tf32"))), hold
        session.exclusive = bool(request.get("suspect"))
        session.constant = {int(index) for index in request.get("constant", ())}
        session.allocate(reference, dice.getrandbits(31), timed)
        with closing(session):
            marks("arenas")
            session.load(request["candidate"], request["class"])
            marks("load")
            session.build(reference, dice.getrandbits(31), "eval" if facts.random else None)
            record.check("init", "pass", f"weights: {session.drop_in}")
            marks("build")
            trial = _trial(session, record, facts, dice, request)
            trial.prepare()
            marks("roles")
            assert trial.own is not None
            compile_s = session.compile(trial.own, dice.getrandbits(31))
            trial.free_inputs()
            marks("compile")
            battery.seeds(trial)
            marks("seeds")
            battery.rest(trial)
            marks("probes")
            times = (
                _timed(trial, session, float(request.get("time_budget", 0.1)), marks, so_far) if timed else {}
            )
            if "untimed" not in times:
                gpu_probes.graph(trial, session)
                marks("graph")
            if trial.audit and "untimed" not in times:
                gpu_probes.profile(trial, session)
                marks("profile")
            marks.seconds |= session.memory()
            return times | {"compile_s": compile_s}


def _trial(
    session: GpuSession, record: Record, facts: Facts, dice: random.Random, request: dict[str, Any]
) -> Trial:
    audit, timed, traces = (bool(request.get(name)) for name in ("audit", "timed", "traces"))
    return Trial(session, record, facts, dice, audit, request.get("probes", "all"), timed, wants_trace=traces)


def _timed(
    trial: Trial, session: GpuSession, budget: float, marks: _Marks, so_far: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Return times, or why there are none. A failure to time does not change the verdict."""
    suspect = session.exclusive
    try:
        stopwatch = Stopwatch(trial)
        inside.server.draft(so_far())
        marks("prepared")
        torch.cuda.synchronize()
        session.exclusive = True
        with session.computing(cap=EXCLUSIVE_S):
            marks("waited")
            stopwatch.measure(budget)
    except TooSlowToTime as error:
        return {"untimed": f"too slow to be timed: {error}"}
    except Stop as stop:
        # On a shared GPU, or if memory was short, this proves nothing: the candidate is judged again.
        passing = not session.exclusive or memory_was_short(stop.error)
        if stop.status not in ("TIMEOUT", "UNSUPPORTED") or passing:
            raise
        return {"untimed": f"it did not end while it was timed: {stop.error}"}
    finally:
        session.exclusive = suspect
        inside.server.draft(None)
    marks("timed")
    found = stopwatch.results()
    marks("compared")
    return found


_NEXT = {
    "begun": "runs the reference",
    "reference": "allocating",
    "arenas": "loads",
    "load": "builds",
    "build": "looks at inputs",
    "roles": "compiles",
    "compile": "first calls",
    "seeds": "probes",
    "probes": "prepares timing",
    "prepared": "waiting for exclusive GPU",
    "waited": "timing",
    "timed": "compares",
    "compared": "captures a graph",
}
"""The step after each mark, for display."""


class _Marks:
    """Seconds spent per step. Each mark also announces the next step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def __call__(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._last = round(now - self._last, 4), now
        inside.server.doing(_NEXT.get(name, name))


@contextmanager
def _exclusive_gpu() -> Iterator[None]:
    """Take exclusive use of this GPU."""
    torch.cuda.synchronize()
    with inside.server.holding_gpu(True, EXCLUSIVE_S):
        yield
        torch.cuda.synchronize()


def _reference(request: dict[str, Any], hold: GpuHold) -> Reference:
    reference = load_reference(request["reference"], request.get("entry_point"), "cuda")
    reference.exclusive = bool(request.get("exclusive"))
    reference.computing = hold
    return reference


def _baseline(request: dict[str, Any]) -> dict[str, Any]:
    """Compare the compiled reference with eager, in a process that never runs a candidate."""
    dice = random.Random(request["seed"])
    try:
        reference = _reference(request, GpuHold())
        inside.server.doing("baseline")
        facts = reference.examine(dice.getrandbits(31))
        model = reference.new(dice.getrandbits(31))
        if facts.random:
            model.eval()
        calls = [reference.inputs(dice.getrandbits(31))]
        taken = bytes_of(reference.run(model, calls[0]).leaves)
        sets = most_kept(_BASELINE_SETS, bytes_of(calls[0].tensors()))
        calls += [reference.inputs(dice.getrandbits(31)) for _ in range(sets - 1)]
        torch.cuda.empty_cache()
        return measure_baselines(
            model, calls, request["modes"], _exclusive_gpu, most_kept(KEPT_RESULTS, taken)
        )
    except (BadReference, TooSlowToTime, torch.cuda.OutOfMemoryError) as error:
        return {"error": str(error)[:500]}


# ---------------------------------------------------------------------------------------------- caches


def _own_cache() -> None:
    """Give this process its own Triton cache, copied from the warm one."""
    os.environ["TRITON_CACHE_DIR"] = os.path.abspath("triton_cache")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("inductor_cache")
    _copy_files(_process.warm_cache, "triton_cache")


def _copy_files(source: str, target: str) -> None:
    """Like shutil.copytree, without times and modes: a sandboxed process may not set them."""
    os.mkdir(target)
    for entry in os.scandir(source):
        copied = os.path.join(target, entry.name)
        if entry.is_dir():
            _copy_files(entry.path, copied)
        else:
            shutil.copyfile(entry.path, copied)


def _in_a_process(work: Callable[[], None]) -> None:
    """Run CUDA work that must not run in the server."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status:
        raise RuntimeError(f"the first launch of a kernel failed (status {status}): is the GPU well?")


def _launch_once(warm_up: Any) -> None:
    """Have Triton build what it builds once per machine, and record the GPU's architecture."""
    warm_up.launch()
    with open(_ARCH_FILE, "w") as file:
        file.write(f"{backend_here().arch()}")


def _compile_once(warm_up: Any) -> None:
    """Have Triton do its once-per-process work here, without CUDA: hash itself, query versions, import."""
    with open(_ARCH_FILE) as file:
        target = backend_here().target(int(file.read()))
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(warm_up.double, signature, constexprs={"BLOCK": 64})
    triton.compile(source, target=target)
