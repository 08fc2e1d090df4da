"""A GPU as a candidate's runtime: real launches, counted; tensors through arenas; timed blocks of calls."""

from __future__ import annotations

import functools
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from triton.runtime.jit import JITFunction

from kernelmill.evaluate.arena import Arena
from kernelmill.evaluate.candidate import Candidate
from kernelmill.evaluate.channel import Bytes, Carrier, pack
from kernelmill.evaluate.clock import Clock

_run = JITFunction.run
_set_deterministic = torch._C._set_deterministic_algorithms
_set_fill = torch._C._set_deterministic_fill_uninitialized_memory


@dataclass
class Launch:
    qualname: str
    file: str
    programs: int
    suppressed: bool
    config: int | None = None


@dataclass
class Observed:
    """As the interpreter's, with what can be seen on a GPU."""

    launches: list[Launch] = field(default_factory=list)
    signatures: list[dict[str, Any]] = field(default_factory=list)
    oob: list[dict[str, Any]] = field(default_factory=list)
    oob_count: int = 0
    autotuned: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class OnGpu:
    def __init__(self) -> None:
        self.down: Arena | None = None
        self.up: Arena | None = None
        self._seen = Observed()

    def install(self, request: dict[str, Any]) -> None:
        torch.cuda.init()
        self.down = Arena.open(*request["down"])
        self.up = Arena.open(*request["up"])

    def begin(self, request: dict[str, Any]) -> None:
        self._seen = seen = Observed()
        suppressed, names = bool(request.get("suppress_all")), frozenset(request.get("suppress") or ())

        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            function = self.fn
            stop = suppressed or function.__qualname__ in names
            programs = 1 if callable(grid) else math.prod(int(size) for size in grid)
            if not warmup and len(seen.launches) < 1000:
                file = function.__code__.co_filename
                seen.launches.append(Launch(function.__qualname__, file, programs, stop))
            return None if stop and not warmup else _run(self, *args, grid=grid, warmup=warmup, **kwargs)

        JITFunction.run = run
        # Memory that nobody wrote reads as NaN.
        _set_deterministic(True, warn_only=True)
        _set_fill(True)

    def end(self) -> Observed:
        JITFunction.run = _run
        _set_deterministic(False)
        torch.cuda.current_stream().synchronize()
        return self._seen

    def carriers(self, blobs: list[memoryview]) -> tuple[Carrier, Carrier]:
        if self.down is None or self.up is None:
            return Bytes(blobs), Bytes()
        return self.down, self.up.empty()

    def building(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.device("cuda")
        return context

    def placed(self, model: Any) -> Any:
        return model.cuda() if isinstance(model, torch.nn.Module) else model

    def unsupported(self, error: BaseException) -> str | None:
        return None

    def progress(self, error: BaseException) -> str:
        return ""


class GpuCandidate(Candidate):
    """A candidate that can also be timed."""

    _clock: Clock | None = None
    _sets: list[Any]

    def do_sets(self, request: dict[str, Any]) -> dict[str, Any]:
        """Inputs for timing, each set in memory of its own."""
        self._sets = [(self._unpacked(args), self._unpacked(kwargs)) for args, kwargs in request["sets"]]
        return {}

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """One block of timed calls. The results whose numbers are in `send` go to the judge, as they were at once."""
        if self._clock is None:
            self._clock = Clock()
        send, sent = set(request["send"]), {}

        def after(number: int, result: Any) -> None:
            if number in send:
                sent[number] = pack(result, self.outgoing)

        model = self.model
        with torch.no_grad():
            sets = (self._sets[place] for place in request["order"])
            calls = [functools.partial(model, *args, **kwargs) for args, kwargs in sets]
            times = self._clock.block(calls, request["regime"], after)
        return {"times": times, "results": [[number, packed] for number, packed in sent.items()]}
