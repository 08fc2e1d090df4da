"""A session with a candidate on a GPU: tensors cross in arenas, and computation waits for the GPU lock.

A call that shares the GPU gets a short timeout, because a timeout on a shared GPU does not show whether the
call would end. A candidate that is too slow there is judged again with exclusive use of the GPU for each call
(`exclusive`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from kernelmill.evaluate.gpu.arena import Arena
from kernelmill.evaluate.gpu.gpu_memory import memory_was_short
from kernelmill.evaluate.judge.channel import Carrier, pack
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import TOO_SLOW, Stop
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.task.reference import Reference
from kernelmill.evaluate.task.values import Call, Outputs
from kernelmill.sandbox import inside
from kernelmill.sandbox.own_time import OwnTime

_LEAST_ARENA = 1 << 20
_MOST_SETS = 2 << 30
_SETS = 8
"""How many sets of small inputs the arena can hold if calls are timed."""
LEAN_FROM = 1 << 30
"""Bytes of inputs, outputs and weights from which on both sides release memory they do not use."""
_TOO_MUCH = "an arena of"
_COMPUTES, _SMALL = (
    ("call", "graph", "replay_graph", "replay", "ready", "profile"),
    ("load", "build", "weights", "sets", "resend"),
)
_OURS_FROM = 0.25
"""Fraction of the GPU's memory. If the judge uses more, running out of memory is not the candidate's
fault."""
_SHARED_S, _SHARED_TIMES = 1.0, 20
"""Timeout of a call on a shared GPU: minimum seconds, and a multiple of the reference's time."""
_GRACE_S = 1.0
_EXCLUSIVE_TIMES = 50
"""Timeout of a call with exclusive use, as a multiple of the reference's time, if that exceeds the limit."""
_SLACK_S = 30.0
"""How long the lock may be held beyond the candidate's limit: for the judge's own part, and for noticing the
timeout."""
_REFERENCE_S = 60.0
"""The cap on holding the lock while the reference runs."""
_TUNER_S, _A_CONFIGURATION_S, _MOST_CONFIGURATIONS = 3.0, 0.5, 128
"""Timeout of a call with a tuner: minimum seconds for the call, and seconds to try one configuration."""


class GpuHold:
    """The judge's hold on the GPU lock, as a context manager. Nested, it is a no-op."""

    def __init__(self, exclusive: bool = False) -> None:
        self._exclusive = exclusive
        """The default if the caller does not choose."""
        self._held: tuple[bool, float] | None = None

    @contextmanager
    def __call__(self, exclusive: bool | None = None, cap: float = _REFERENCE_S) -> Iterator[None]:
        if self._held is not None:
            yield
            return
        self._held = exclusive, cap = (self._exclusive if exclusive is None else exclusive, cap)
        inside.server.acquire_gpu(exclusive, cap)
        try:
            yield
            torch.cuda.current_stream().synchronize()
        except BaseException as error:
            # A call that timed out is still running: the lock is released when its process ends.
            if not (isinstance(error, Stop) and error.status == "TIMEOUT"):
                self._release()
            raise
        self._release()

    def _release(self) -> None:
        self._held = None
        inside.server.release_gpu()

    def interrupt(self) -> None:
        """Release the lock temporarily."""
        if self._held is not None:
            inside.server.release_gpu()

    def resume(self) -> None:
        if self._held is not None:
            inside.server.acquire_gpu(*self._held)


class GpuSession(Session):
    hold: GpuHold
    down: Arena
    up: Arena
    lean = False
    parallel = False
    compiles = True
    task_bytes = 0
    """Bytes of one set of inputs, the outputs and the weights."""
    reference_s = 0.0
    """Seconds that one call of the reference took when the arenas were allocated."""
    candidate_bytes = 0
    """The peak memory that the candidate's process reports. Known only for large tasks (`lean`)."""

    @property
    def grace(self) -> float:
        """None on a shared GPU: nothing that is reported there would count."""
        return _GRACE_S if self.exclusive else 0.0

    def allocate(self, reference: Reference, seed: int, timed: bool) -> None:
        """Allocate arenas that fit one call of this reference, or several sets of small inputs."""
        model, call, init = reference.new(seed), reference.inputs(seed), reference.init_call(seed)
        state = [*model.state_dict().values(), *init.tensors()]
        with self.hold():  # waiting for the lock is not measured
            start = time.monotonic()
            outputs = reference.run(model, call).leaves
            torch.cuda.synchronize()
            self._set_limits(time.monotonic() - start)
        held, given, taken = (_bytes(tensors) for tensors in (state, call.tensors(), outputs))
        down = held + max(given, min(_SETS * given, _MOST_SETS) if timed else 0) + _LEAST_ARENA
        up = held + taken + _LEAST_ARENA
        self.task_bytes = held + given + taken
        self.lean = self.task_bytes >= LEAN_FROM
        del model, call, init, state, outputs  # large ones would not fit beside the arenas
        torch.cuda.empty_cache()
        self.down = Arena.allocate(down)
        try:
            self.up = Arena.allocate(up)
        except BaseException:
            self.down.free()
            raise

    def _set_limits(self, reference_s: float) -> None:
        self.reference_s = reference_s
        exclusive_s = max(self._limits.call_s, _EXCLUSIVE_TIMES * reference_s)
        self.call_s = exclusive_s if self.exclusive else max(_SHARED_S, _SHARED_TIMES * reference_s)

    def computing(
        self, exclusive: bool | None = None, cap: float | None = None
    ) -> AbstractContextManager[None]:
        """Hold the GPU lock. It is exclusive if this candidate's calls have to be, or if requested."""
        return self.hold(self.exclusive if exclusive is None else exclusive, cap or self.call_s + _SLACK_S)

    def interrupt(self) -> None:
        self.hold.interrupt()

    def resume(self) -> None:
        self.hold.resume()

    def memory(self) -> dict[str, float]:
        """Peak memory in GB: in use on both sides, and the arenas separately."""
        found = {"task_gb": self.task_bytes, "arenas_gb": self.down.size + self.up.size}
        found |= {"judge_gb": torch.cuda.max_memory_allocated(), "candidate_gb": self.candidate_bytes}
        return {name: round(size / 1e9, 2) for name, size in found.items()}

    def close(self) -> None:
        for arena in (self.down, self.up):
            arena.free()

    def outgoing(self) -> Carrier:
        return self.down.empty()

    def incoming(self, blobs: list[memoryview]) -> Carrier:
        return self.up

    def load(self, code: str, class_name: str) -> None:
        self.code = code
        fields = {"code": code, "class": class_name} | self._arenas()
        said, _ = self.ask("load", self._limits.load_s, fields)
        self.traces = bool(said.get("traces"))

    def _arenas(self) -> dict[str, Any]:
        return {
            "down": [self.down.size, self.down.handle],
            "up": [self.up.size, self.up.handle],
            "lean": self.lean,
        }

    def for_programs(self, end: socket.socket, clock: OwnTime) -> GpuSession:
        """As `Session.for_programs`. The process shares the arenas: only one of the two is asked at a time."""
        other = GpuSession(end, self.record, self._limits, clock)
        other.hold, other.down, other.up, other.lean = self.hold, self.down, self.up, self.lean
        other.exclusive, other.call_s, other.reference_s = self.exclusive, self.call_s, self.reference_s
        other.ask("open", self._limits.load_s, self._arenas())
        return other

    def call(self, call: Call, seed: int, **options: Any) -> Returned:
        if self.lean:
            self._answer = None
            options.pop("again", None)  # the arena has no room for other inputs
        return super().call(call, seed, lean=self.lean, **options)

    def compile(self, call: Call, seed: int) -> float:
        """Have the candidate compile all that a call launches, without a launch. Returns the seconds.

        Others may use the GPU meanwhile, even exclusively. A failure here occurs again in the first call. If
        there are configurations to choose from, tuning runs right away, with exclusive use of the GPU.
        """
        compiled = self.call(call, seed, compile_only=True, forget=True, tolerate=True)
        found = compiled.reply.get("observed", {}).get("configurations", 0)
        if configurations := min(int(found), _MOST_CONFIGURATIONS):
            self._choose(call, seed, configurations)
        return compiled.seconds

    def _choose(self, call: Call, seed: int, configurations: int) -> None:
        """Have tuners choose among this many configurations."""
        limit = self.call_s
        self.call_s = max(limit, _TUNER_S) + _A_CONFIGURATION_S * configurations
        try:
            with self.computing(exclusive=True):
                said = self.call(call, seed, forget=True, tolerate=True).reply
        finally:
            self.call_s = limit
        if "error" in said and said["error"]["slow"]:
            raise Stop("UNSUPPORTED", f"{TOO_SLOW}: to choose among {configurations} configurations")

    def captured(self, call: Call) -> str:
        """Have the candidate capture a call as a CUDA graph. Returns why it cannot be captured, or ""."""
        said, _ = self._on("graph", call)
        return f"{said['error']['type']}: {said['error']['message']}" if "error" in said else ""

    def replayed(self, fresh: Call) -> tuple[Outputs | None, str]:
        """Return the captured graph's outputs for other inputs, or why they are unknown."""
        said, out = self._on("replay_graph", fresh)
        if "error" in said:
            return None, f"{said['error']['type']}: {said['error']['message']}"
        return self.unpacked_outputs(said, out)

    def _on(self, do: str, call: Call) -> tuple[dict[str, Any], list[memoryview]]:
        carrier = self.outgoing()
        fields = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier)}
        self._answer = None
        said, out = self.ask(do, self.call_s, fields, carrier, tolerate=True)
        return said, out

    def profiled(self, call: Call) -> tuple[list[tuple[str, float]], str]:
        """Return what ran on the GPU in a call, as names and microseconds, or why that is unknown."""
        carrier = self.outgoing()
        fields = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier)}
        said, _ = self.ask("profile", self._limits.load_s, fields, carrier, tolerate=True)
        if "error" in said:
            return [], f"{said['error']['type']}: {said['error']['message']}"
        return [(str(name), float(time)) for name, time in said["ran"]], "" if said[
            "ran"
        ] else "nothing was seen"

    def ask(self, do: str, seconds: float, fields: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        torch.cuda.current_stream().synchronize()  # wait until the arena's contents are written
        if self.lean and do != "time":
            torch.cuda.empty_cache()
        computes = do in _COMPUTES and not fields.get("compile_only")
        computes |= self.exclusive and do in _SMALL  # a suspected hang may occur in any of these
        try:
            with self.computing() if computes else nullcontext():
                said, out = super().ask(do, seconds, fields, *args, **kwargs)
        except Stop as stop:
            if do == "call" and stop.status == "OOM" and _TOO_MUCH in stop.error:
                words = f"it returns more bytes than the task does\n{stop.error}"
                raise Stop("INCORRECT_SHAPE", words) from stop
            if not memory_was_short(stop.error):
                raise
            raise _no_room(self.down.size + self.up.size, stop.error) from stop
        self.candidate_bytes = max(self.candidate_bytes, int(said.get("memory", 0)))
        return said, out

    def unpacked_outputs(
        self, said: dict[str, Any], out: list[memoryview], carrier: Carrier | None = None
    ) -> tuple[Outputs | None, str]:
        outputs, trouble = super().unpacked_outputs(said, out, carrier)
        if outputs is not None:  # the next call overwrites the arena
            outputs.leaves = [leaf.clone() for leaf in outputs.leaves]
        return outputs, trouble


def _no_room(arenas: int, error: str) -> Stop:
    """Decide who is to blame for a full GPU. If the task itself fills much of it, nobody is."""
    ours, all_of_it = torch.cuda.memory_reserved() + arenas, torch.cuda.get_device_properties(0).total_memory
    if ours < _OURS_FROM * all_of_it:
        return Stop("OOM", error)
    return Stop(
        "UNSUPPORTED", f"this task does not fit: judging it takes {ours / 2**30:.0f} GB here\n{error}"
    )


def _bytes(tensors: list[Any]) -> int:
    return sum(-(-t.numel() * t.element_size() // 256) * 256 for t in tensors)
