"""The judge of the GPU tiers: a worker for `kernelmill.isolate` on one GPU, with candidate processes as companions.

As in `judge`, the candidate's code runs in a companion. Here the task has its own sizes, tensors cross in GPU memory, and
with `timed` the candidate's calls are timed in turn with the reference's own, under a lock that all judges of this GPU
share, so that nothing else runs meanwhile.

The server that forks judges never touches CUDA: a context does not survive a fork.
"""

from __future__ import annotations

import dataclasses
import fcntl
import importlib
import os
import random
import shutil
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from triton.backends.nvidia import driver as nvidia_driver

from kernelmill.evaluate import candidate, probes
from kernelmill.evaluate.arena import Arena
from kernelmill.evaluate.channel import Carrier
from kernelmill.evaluate.gpu_runtime import GpuCandidate, OnGpu
from kernelmill.evaluate.reference import Answer, BadReference, Facts, Reference, load_reference
from kernelmill.evaluate.session import Limits, Record, Session, Stop, settling
from kernelmill.evaluate.stopwatch import Stopwatch, measure_baselines
from kernelmill.evaluate.tolerance import Policy
from kernelmill.evaluate.trial import Trial
from kernelmill.evaluate.values import Call, Outputs

_LEAST_ARENA = 1 << 20
_MOST_ARENA = 8 << 30
_warm: list[str] = []
_WARM_UP = """
import torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
x = torch.ones(5, 7, device="cuda")
double[(3,)](x, torch.empty_like(x), x.numel(), BLOCK=16)
"""
_lock: list[int] = []


def prepare() -> None:
    """Imports, the lock, a warm cache of Triton's. Nothing here may start CUDA in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.NamedTemporaryFile(delete=False) as file:
        _lock.append(os.dup(file.fileno()))
    os.unlink(file.name)
    # Torch imports these at odd moments, and replaces functions of its own then.
    importlib.import_module("torch._dynamo")
    importlib.import_module("torch._inductor.compile_fx")
    nvidia_driver.library_dirs()  # it asks a program, and remembers the answer
    _warm.append(os.path.abspath("warm_cache"))
    os.mkdir(_warm[0])
    _in_a_process(_launch_once)


def readable() -> list[str]:
    """What candidates may read beside the usual: the cache that they start from."""
    return _warm


def inherits() -> list[int]:
    """The descriptors that a judge keeps, and a candidate does not."""
    return _lock


def companion(end: socket.socket) -> None:
    warnings.simplefilter("ignore")
    _own_cache()
    candidate.serve(end, OnGpu(), GpuCandidate)


def handle(request: dict[str, Any], sockets: list[socket.socket]) -> dict[str, Any]:
    """`do`: judge (a `Record` and perhaps times), baseline (of a reference alone), or health."""
    warnings.simplefilter("ignore")
    _own_cache()
    if request["do"] == "health":
        return {"sum": float(torch.ones(1000, device="cuda").sum()), "device": torch.cuda.get_device_name()}
    if request["do"] == "baseline":
        return _baseline(request)
    record, start = Record(), time.monotonic()
    times: dict[str, Any] = {}
    with settling(record):
        times = _judge(request, sockets, record, start)
    return dataclasses.asdict(record) | {"seconds": time.monotonic() - start, "times": times}


class GpuSession(Session):
    """A session whose tensors cross in arenas."""

    down: Arena
    up: Arena

    def outgoing(self) -> Carrier:
        return self.down.empty()

    def incoming(self, blobs: list[memoryview]) -> Carrier:
        return self.up

    def _outputs(self, said: dict[str, Any], out: list[memoryview]) -> tuple[Outputs | None, str]:
        outputs, trouble = super()._outputs(said, out)
        if outputs is not None:  # the arena is written over by the next call
            outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
        return outputs, trouble

    def load(self, code: str, class_name: str) -> None:
        fields = {"code": code, "class": class_name, "down": [self.down.size, self.down.handle]}
        self.ask("load", self._limits.load_s, fields | {"up": [self.up.size, self.up.handle]})

    def ask(self, do: str, *args: Any, **kwargs: Any) -> Any:
        torch.cuda.current_stream().synchronize()  # what was put into the arena is there
        if do == "call" and self.calls:  # the first one mostly compiles
            with _working():
                return super().ask(do, *args, **kwargs)
        return super().ask(do, *args, **kwargs)

    def expected(self, call: Call, seed: int) -> Answer:
        with _working():
            answer = super().expected(call, seed)
            torch.cuda.current_stream().synchronize()
            return answer


def _judge(
    request: dict[str, Any], sockets: list[socket.socket], record: Record, start: float
) -> dict[str, Any]:
    limits, marks = Limits(**request.get("limits", {})), _Marks()
    dice = random.Random(request["seed"])
    torch.cuda.init()
    marks("context")
    reference, facts = _reference(request, dice)
    marks("reference")
    record.task = {"version": "original", "gpu": torch.cuda.get_device_name(), "marks": marks.seconds}
    if facts.oracle_note:
        record.task["oracle"] = facts.oracle_note
    if facts.random_in_eval:
        raise Stop("UNSUPPORTED", "the reference is random: there is no right answer to compare with")
    mode = "eval" if facts.random else None
    session = GpuSession(sockets[0], record, limits, start + limits.total_s)
    session.policy = Policy(tf32=bool(request.get("tf32")))
    session.down, session.up = _arenas(reference, dice, bool(request.get("timed")))
    marks("arenas")
    session.load(request["candidate"], request["class"])
    marks("load")
    session.build(reference, dice.getrandbits(31), mode)
    record.check("init", "pass", f"weights: {session.drop_in}")
    marks("build")
    trial = Trial(session, record, facts, dice, bool(request.get("audit")), on_gpu=bool(request["brief"]))
    trial.prepare()
    marks("roles")
    probes.seeds(trial)
    marks("seeds")
    probes.rest(trial)
    marks("probes")
    if not request.get("timed"):
        return {}
    stopwatch = Stopwatch(trial)
    marks("prepared")
    with _exclusive():
        marks("waited")
        stopwatch.measure(float(request.get("time_budget", 0.1)))
    marks("timed")
    return stopwatch.results()


class _Marks:
    """Where the time went, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def __call__(self, name: str) -> None:
        now = time.monotonic()
        self.seconds[name], self._last = round(now - self._last, 4), now


def _reference(request: dict[str, Any], dice: random.Random) -> tuple[Reference, Facts]:
    reference = load_reference(request["reference"], request.get("entry_point"), "cuda")
    return reference, reference.examine(dice.getrandbits(31))


def _arenas(reference: Reference, dice: random.Random, timed: bool) -> tuple[Arena, Arena]:
    seed = dice.getrandbits(31)
    model, call = reference.new(seed), reference.inputs(seed)
    state = list(model.state_dict().values())
    outputs = reference.run(model, call).leaves
    held, given, taken = (_bytes(tensors) for tensors in (state, call.tensors(), outputs))
    sets = 8 if timed else 1
    down = min(max(held + given, sets * given), max(_MOST_ARENA, held + given)) + _LEAST_ARENA
    return Arena.allocate(down), Arena.allocate(8 * taken + held + _LEAST_ARENA)


def _bytes(tensors: list[Any]) -> int:
    return sum(-(-t.numel() * t.element_size() // 256) * 256 for t in tensors)


_GATE, _WORK = 0, 1
"""Bytes of the lock's file. Who times takes the gate, so that nobody new starts to work, then waits for the work."""


@contextmanager
def _exclusive() -> Iterator[None]:
    """Nothing else is computed on this GPU meanwhile. The kernel gives the locks back if this process dies."""
    torch.cuda.synchronize()
    with _locked(_GATE, fcntl.LOCK_EX), _locked(_WORK, fcntl.LOCK_EX):
        yield
        torch.cuda.synchronize()


@contextmanager
def _working() -> Iterator[None]:
    """A short piece of work beside others'."""
    with _locked(_GATE, fcntl.LOCK_SH):
        fcntl.lockf(_lock[0], fcntl.LOCK_SH, 1, _WORK)
    try:
        yield
    finally:
        fcntl.lockf(_lock[0], fcntl.LOCK_UN, 1, _WORK)


@contextmanager
def _locked(place: int, how: int) -> Iterator[None]:
    fcntl.lockf(_lock[0], how, 1, place)
    try:
        yield
    finally:
        fcntl.lockf(_lock[0], fcntl.LOCK_UN, 1, place)


def _baseline(request: dict[str, Any]) -> dict[str, Any]:
    """How the compiled reference compares with the eager one, in a process that never saw a candidate."""
    dice = random.Random(request["seed"])
    try:
        reference, facts = _reference(request, dice)
        model = reference.new(dice.getrandbits(31))
        if facts.random:
            model.eval()
        calls: list[Call] = [reference.inputs(dice.getrandbits(31)) for _ in range(4)]
        return measure_baselines(model, calls, request["modes"], _exclusive)
    except (BadReference, torch.cuda.OutOfMemoryError) as error:
        return {"error": str(error)[:500]}


def _own_cache() -> None:
    """A cache of Triton's for this process alone, begun from the warm one."""
    os.environ["TRITON_CACHE_DIR"] = os.path.abspath("triton_cache")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("inductor_cache")
    _copy_files(_warm[0], "triton_cache")


def _copy_files(source: str, target: str) -> None:
    """As shutil.copytree, without times and modes: a confined process may not set them."""
    os.mkdir(target)
    for entry in os.scandir(source):
        place = os.path.join(target, entry.name)
        if entry.is_dir():
            _copy_files(entry.path, place)
        else:
            shutil.copyfile(entry.path, place)


def _in_a_process(work: Callable[[], None]) -> None:
    """Do something with CUDA that must not be done in the server."""
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


def _launch_once() -> None:
    """Have Triton build what it builds once a machine."""
    os.environ["TRITON_CACHE_DIR"] = _warm[0]
    candidate.warm_up(_WARM_UP)
    torch.cuda.synchronize()
