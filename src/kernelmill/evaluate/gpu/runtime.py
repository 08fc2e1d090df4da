"""The candidate's runtime on a GPU: real, counted launches; tensors in arenas; timed blocks of calls."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction

from kernelmill.evaluate.gpu.arena import Arena
from kernelmill.evaluate.gpu.clock import Clock, l2_cache_bytes
from kernelmill.evaluate.gpu_backends import backend_here
from kernelmill.evaluate.judge.channel import Bytes, Carrier, pack, unpack
from kernelmill.evaluate.trace.candidate import TracedCandidate
from kernelmill.evaluate.trace.recorder import Recorder
from kernelmill.torch_calls.tensors import tensors_in

_run, _tune, _do_compile = JITFunction.run, Autotuner.run, JITFunction._do_compile
_init_handles, _bench = CompiledKernel._init_handles, Autotuner._bench
_launcher_property = CompiledKernel.run
_launcher = _launcher_property.fget
_BEFORE_ARGUMENTS = 9
"""Of what a launcher is called with: the grid, the stream, the function, three kinds of data and two hooks."""
_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "launch_cooperative_grid",
    "launch_pdl",
    "enable_fp_fusion",
)
"""Of a compiled kernel, that it was launched with."""
_UNFIT = (OutOfResources, CompileTimeAssertionFailure, PTXASError)
"""Errors that a tuner tolerates in one of its configurations."""
_MOST_PROFILED = 500
_TUNE_MS, _MOST_LAUNCHES = 4.0, 12
"""Limits for timing one configuration in a tuner: milliseconds, and number of launches."""
_synchronize, _event = torch.cuda.synchronize, torch.cuda.Event
_graph = torch.cuda.CUDAGraph
_capture_begin, _capture_end, _replay = _graph.capture_begin, _graph.capture_end, _graph.replay
_set_deterministic = torch._C._set_deterministic_algorithms
_set_fill = torch._C._set_deterministic_fill_uninitialized_memory
_empty_cache, _most_allocated = torch.cuda.empty_cache, torch.cuda.max_memory_allocated


@dataclass
class GpuLaunch:
    qualname: str
    file: str
    programs: int
    suppressed: bool
    config: int | None = None


@dataclass
class GpuObserved:
    """Like the interpreter's, with what can be observed on a GPU."""

    launches: list[GpuLaunch] = field(default_factory=list)
    signatures: list[dict[str, Any]] = field(default_factory=list)
    oob: list[dict[str, Any]] = field(default_factory=list)
    oob_count: int = 0
    autotuned: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    configurations: int = 0
    """How many configurations tuners have to choose from."""


class OnGpu:
    def __init__(self) -> None:
        self.down: Arena | None = None
        self.up: Arena | None = None
        self.lean = False
        """The task is large: release unused memory to the GPU."""
        self._seen = GpuObserved()
        self._recorder: Recorder | None = None
        self._suppresses_all = False
        self.pausing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """Wraps work that does not count as the candidate's running time."""

    def install(self, request: dict[str, Any]) -> None:
        backend_here().start()
        triton.set_allocator(
            lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda")
        )
        self.down = Arena.open(*request["down"])
        self.up = Arena.open(*request["up"])
        self.lean = bool(request["lean"])
        Autotuner.do_bench = property(_benchmark)

        def compile_apart(jit: Any, *args: Any, **kwargs: Any) -> Any:
            with self.pausing():
                return _do_compile(jit, *args, **kwargs)

        def load_apart(kernel: Any) -> None:
            if kernel.module is not None:
                return
            with self.pausing():  # some versions of Triton compile a launcher for each signature
                _init_handles(kernel)

        JITFunction._do_compile, CompiledKernel._init_handles = compile_apart, load_apart
        self._watch_graphs()

    def _watch_graphs(self) -> None:
        """What a captured graph launches counts when it runs."""
        captured: dict[int, tuple[Any, list[GpuLaunch]]] = {}
        before = 0

        def begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            nonlocal before
            _capture_begin(graph, *args, **kwargs)
            before = len(self._seen.launches)
            if self._recorder is not None:
                self._recorder.capturing(graph)

        def end(graph: Any) -> None:
            _capture_end(graph)
            captured[id(graph)] = graph, self._seen.launches[before:]
            del self._seen.launches[before:]
            if self._recorder is not None:
                self._recorder.captured(graph)

        def replay(graph: Any) -> None:
            launches = captured.get(id(graph), (graph, []))[1]
            self._seen.launches += [
                dataclasses.replace(one, suppressed=self._suppresses_all) for one in launches
            ]
            if self._recorder is not None:
                self._recorder.replays(graph)
            if not self._suppresses_all:
                _replay(graph)

        graphs = torch.cuda.CUDAGraph
        graphs.capture_begin, graphs.capture_end, graphs.replay = begin, end, replay

    def begin(self, request: dict[str, Any]) -> None:
        self._seen, runtime = (seen := GpuObserved()), self
        self._suppresses_all = suppressed = bool(request.get("suppress_all"))
        names = frozenset(request.get("suppress") or ())

        def launcher(kernel: Any) -> Callable[..., Any]:
            """What runs a compiled kernel, however Python came to launch it."""
            function, launch = kernel.src.fn.fn, _launcher(kernel)
            stop = suppressed or function.__qualname__ in names

            def launch_observed(*arguments: Any) -> Any:
                grid, values = arguments[:3], arguments[_BEFORE_ARGUMENTS:]
                if len(seen.launches) < 1000:
                    file = function.__code__.co_filename
                    seen.launches.append(GpuLaunch(function.__qualname__, file, math.prod(grid), stop))
                if runtime._recorder is not None:
                    _record(runtime._recorder, kernel, values, grid)
                return None if stop else launch(*arguments)

            return launch_observed

        choices: dict[int, int] = {}

        def compile_all(self: Any, *args: Any, **kwargs: Any) -> None:
            choices[id(self)] = _compile_all(self, *args, **kwargs)
            seen.configurations = sum(choices.values())

        if request.get("compile_only"):
            JITFunction.run = _compile
        else:
            CompiledKernel.run = property(launcher)
        Autotuner.run = compile_all if request.get("compile_only") else _tune
        # Uninitialised memory reads as NaN.
        _set_deterministic(True, warn_only=True)
        _set_fill(True)

    def end(self) -> GpuObserved:
        JITFunction.run, Autotuner.run, CompiledKernel.run = _run, _tune, _launcher_property
        self._suppresses_all = False
        _set_deterministic(False)
        _synchronize()
        return self._seen

    def carriers(self, blobs: list[memoryview]) -> tuple[Carrier, Carrier]:
        if self.down is None or self.up is None:
            return Bytes(blobs), Bytes()
        return self.down, self.up.empty()

    def settle(self) -> None:
        if self.down is not None:
            _synchronize()

    def building(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.device("cuda")
        return context

    def placed(self, model: Any) -> Any:
        return model.cuda() if isinstance(model, torch.nn.Module) else model

    @contextlib.contextmanager
    def recording(self, recorder: Recorder) -> Iterator[None]:
        def without_launches(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            with recorder.muted():
                return _bench(tuner, *args, **kwargs)

        self._recorder, Autotuner._bench = recorder, without_launches
        try:
            yield
        finally:
            self._recorder, Autotuner._bench = None, _bench

    def unsupported(self, error: BaseException) -> str | None:
        return None

    def progress(self, error: BaseException) -> str:
        return ""


def _record(recorder: Recorder, kernel: Any, values: Any, grid: Any) -> None:
    names = kernel.src.fn.arg_names
    bound = dict(zip(names, values, strict=False))
    # A compiled kernel has its constants in it, whatever is passed for them.
    bound |= {names[path[0]]: value for path, value in kernel.src.constants.items() if len(path) == 1}
    options = {name: getattr(kernel.metadata, name, None) for name in _OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    if math.prod(grid):
        recorder.launched(kernel.src.fn, bound, tuple(map(int, grid)), given)


def _compile(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    """Replace a launch: compile the kernel and load it onto the GPU."""
    kernel = _run(self, *args, grid=grid, warmup=True, **kwargs)
    if kernel is not None:
        kernel.run  # noqa: B018  a property that loads it
    return kernel


def _compile_all(self: Any, *args: Any, **kwargs: Any) -> int:
    """Replace a tuner's run: compile every configuration it would try.

    Returns how many there are to choose from.
    """
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configurations = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    for config in configurations:
        with contextlib.suppress(*_UNFIT):
            self.fn.run(*args, **kwargs, **config.all_kwargs())
    self.nargs = None
    return len(configurations) if len(configurations) > 1 else 0


def _benchmark(tuner: Any) -> Any:
    """The function a tuner times its configurations with. Triton's own takes 1/8 s for each, for any kernel.

    A benchmark function set by the candidate is used as it is.
    """
    own = None if tuner.use_cuda_graph or tuner.num_warmups or tuner.num_reps else tuner._do_bench
    return own or _quick_bench


def _quick_bench(kernel_call: Callable[[], Any], quantiles: Any = None, **ignored: Any) -> list[float]:
    """Time a launch.

    Returns the median, minimum and maximum in milliseconds. The cache is overwritten before each.
    """
    flush = _flush_buffer()
    kernel_call()

    def once() -> float:
        start, end = _event(enable_timing=True), _event(enable_timing=True)
        flush.zero_()
        start.record()
        kernel_call()
        end.record()
        _synchronize()
        return float(start.elapsed_time(end))

    times = [once()]
    times += [once() for _ in range(max(1, min(_MOST_LAUNCHES, int(_TUNE_MS / max(times[0], 1e-3)))))]
    return [statistics.median(times), min(times), max(times)]


@functools.cache
def _flush_buffer() -> torch.Tensor:
    return torch.empty(l2_cache_bytes(), dtype=torch.uint8, device="cuda")


@contextlib.contextmanager
def _launching_nothing() -> Iterator[None]:
    CompiledKernel.run = property(lambda kernel: lambda *arguments: None)
    try:
        yield
    finally:
        CompiledKernel.run = _launcher_property


class GpuCandidate(TracedCandidate):
    """A candidate that can also be timed."""

    runtime: OnGpu
    _clock: Clock | None = None
    _sets: tuple[Any, ...] | list[Any] = ()
    _captured: tuple[torch.cuda.CUDAGraph, list[Any], Any] | None = None
    """A graph, the tensors it reads, and its outputs."""

    def answer(self, request: dict[str, Any], blobs: list[memoryview]) -> tuple[dict[str, Any], list[bytes]]:
        answer, out = super().answer(request, blobs)
        if self.runtime.lean and request["do"] != "time":  # a timed candidate keeps its memory
            try:
                _empty_cache()
                answer["memory"] = _most_allocated()
            except RuntimeError:
                if "error" not in answer:  # otherwise the GPU's error is already reported
                    raise
        return answer, out

    def do_sets(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store inputs for timing, each set in its own memory. Data of earlier calls is dropped."""
        self.slots.clear()
        self.last = None
        self._sets = [(self.unpacked(args), self.unpacked(kwargs)) for args, kwargs in request["sets"]]
        return {}

    def do_waits(self, request: dict[str, Any]) -> dict[str, Any]:
        """Whether a call waits for the GPU."""
        args, kwargs = self._sets[0]
        with torch.no_grad():
            return {"waits": self._timer(request["kept"]).waits(lambda: self.model(*args, **kwargs))}

    def _timer(self, kept: int) -> Clock:
        if self._clock is None:
            self._clock = Clock(kept)
        return self._clock

    def do_time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Time one block of calls.

        The result of call number `send` goes to the judge, copied right after the call.
        """
        sent: list[Any] = [None]

        def after(number: int, result: Any) -> None:
            if number == request["send"]:
                self.outgoing = self.runtime.carriers([])[1]  # a repeated block starts over
                sent[0] = pack(result, self.outgoing)

        model, clock = self.model, self._timer(request["kept"])
        nothing = contextlib.nullcontext()
        with torch.no_grad(), _launching_nothing() if request.get("suppress_all") else nothing:
            sets = (self._sets[index] for index in request["order"])
            calls = [functools.partial(model, *args, **kwargs) for args, kwargs in sets]
            times = clock.block(calls, request["regime"], after)
        return {"times": times, "result": sent[0]}

    def do_graph(self, request: dict[str, Any]) -> dict[str, Any]:
        """Capture a call as a CUDA graph. Runs after timing."""
        self._sets = ()
        args, kwargs = self.unpacked(request["args"]), self.unpacked(request["kwargs"])
        if self.runtime.lean:
            _empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            result = self.model(*args, **kwargs)
        self._captured = graph, tensors_in([args, kwargs]), result
        return {}

    def do_replay_graph(self, request: dict[str, Any]) -> dict[str, Any]:
        """Copy other values into the memory of a captured call's inputs, and replay it."""
        assert self._captured is not None
        graph, given, result = self._captured
        self._captured = None
        fresh = tensors_in([unpack(request[name], self.incoming) for name in ("args", "kwargs")])
        with torch.no_grad():
            for old, new in zip(given, fresh, strict=True):
                old.data.copy_(new)
            graph.replay()
        return {"output": pack(result, self.outgoing)}

    def do_profile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return what ran on the GPU during a call, as reported by the driver: name and microseconds."""
        args, kwargs = self.unpacked(request["args"]), self.unpacked(request["kwargs"])
        _synchronize()
        with (
            torch.no_grad(),
            torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen,
        ):
            self.model(*args, **kwargs)
            _synchronize()
        on_gpu = [event for event in seen.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return {"ran": [[event.name, event.device_time_total] for event in on_gpu][:_MOST_PROFILED]}
