"""Make torch look as GPU code expects: torch.cuda works, and tensors report that they are on cuda:0.

Everything is on the CPU. A torch function mode, active for the life of the process, maps cuda devices to the
CPU on the way in. On the way out it reports cuda:0, except for what would be in host memory (`host`). CUDA
graphs are rejected.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import warnings
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from kernelmill.evaluate.fake_gpu import host, streams
from kernelmill.evaluate.fake_gpu.device import ANSWERS, MEMORY, PROPERTIES, always, new_class
from kernelmill.evaluate.interpreter_gaps import Unsupported
from kernelmill.torch_calls.tensors import tensors_in

DEVICE = streams.Stream.device
_CPU = torch.device("cpu")


def _to_cpu(device: Any) -> Any:
    if isinstance(device, torch.device):
        return _CPU if device.type == "cuda" else device
    if isinstance(device, str) and device.split(":")[0] == "cuda":
        return "cpu"
    # A bare number is a GPU's.
    return "cpu" if type(device) is int else device


_tensor = torch.Tensor
_run_backward = torch.autograd._engine_run_backward


def _to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    wanted = kwargs.get("device")
    if args and (isinstance(args[0], (torch.device, str)) or type(args[0]) is int):
        wanted = args[0]
        args = (_to_cpu(wanted), *args[1:])
    elif wanted is not None:
        kwargs = {**kwargs, "device": _to_cpu(wanted)}
    result = _tensor.to(tensor, *args, **kwargs)
    like = kwargs.get("other", args[0] if args else None)
    if isinstance(like, _tensor):
        return host.moved(tensor, result, host.is_host(like))
    return host.moved(tensor, result, host.is_host(tensor) if wanted is None else host.wants_host(wanted))


def _type(tensor: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dtype is None:
        name = _tensor.type(tensor)
        return name if host.is_host(tensor) else name.replace("torch.", "torch.cuda.")
    on_host = host.is_host(tensor)
    if isinstance(dtype, str):
        on_host = "cuda" not in dtype
        dtype = dtype.replace("torch.cuda.", "torch.")
    return host.moved(tensor, _tensor.type(tensor, dtype, *args, **kwargs), on_host)


# What a tensor on a GPU returns. Property getters compare equal but are not the same object at each access.
_ANSWERS: dict[Any, Any] = {
    _tensor.is_cuda.__get__: lambda tensor: not host.is_host(tensor),
    _tensor.is_cpu.__get__: lambda tensor: host.is_host(tensor),
    _tensor.device.__get__: lambda tensor: _CPU if host.is_host(tensor) else DEVICE,
    _tensor.get_device: lambda tensor: -1 if host.is_host(tensor) else 0,
    _tensor.cuda: lambda tensor, *args, **kwargs: host.moved(tensor, tensor, False),
    _tensor.cpu: lambda tensor, *args, **kwargs: host.moved(
        tensor, _tensor.cpu(tensor, *args, **kwargs), True
    ),
    _tensor.to: _to,
    _tensor.type_as: lambda tensor, other: host.moved(
        tensor, _tensor.type_as(tensor, other), host.is_host(other)
    ),
    _tensor.pin_memory: lambda tensor, *args, **kwargs: tensor,
    _tensor.record_stream: lambda tensor, stream: None,
    _tensor.type: _type,
    _tensor.untyped_storage: lambda tensor: host.storage_of(tensor),
    # Module.to uses it to parse the device.
    torch._C._nn._parse_to: torch._C._nn._parse_to,
}


class CudaOnCpu(TorchFunctionMode):  # type: ignore[misc]
    inside = False
    """Whether a function that came through this mode is running."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is not None:
            return answer(*args, **kwargs)
        wanted = kwargs.get("device")
        if wanted is not None:
            kwargs = {**kwargs, "device": _to_cpu(wanted)}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        given = tensors_in((args, kwargs))
        host.check(func, given)
        before, self.inside = self.inside, True
        try:
            result = func(*args, **kwargs)
        finally:
            self.inside = before
        return host.settle(given, wanted, result)


_mode = CudaOnCpu()


class _Graph:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise Unsupported("cuda graph")


_ATTRIBUTES: dict[str, Any] = {
    **ANSWERS,
    "is_tf32_supported": always(True),
    "is_current_stream_capturing": always(False),
    "get_device_name": always(PROPERTIES.name),
    "get_arch_list": always(["sm_80", "sm_90"]),
    "current_stream": lambda *args: streams.current(),
    "default_stream": always(streams.DEFAULT),
    "mem_get_info": always((MEMORY, MEMORY)),
    "device_of": new_class(streams.Context),
    "stream": lambda stream: streams.StreamContext(stream),
    "StreamContext": streams.StreamContext,
    "set_stream": lambda stream: streams.set_current(stream),
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": streams.Event,
    "CUDAGraph": _Graph,
    "graph": new_class(_Graph),
    "make_graphed_callables": new_class(_Graph),
    # torch.manual_seed calls these. The only generator, the CPU's, is then seeded already.
    "manual_seed": torch.default_generator.manual_seed,
    "manual_seed_all": torch.default_generator.manual_seed,
    "get_rng_state": lambda *args: torch.get_rng_state(),
    "set_rng_state": lambda state, *args: torch.set_rng_state(state),
}
_NOTHING = (
    "empty_cache",
    "init",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "set_per_process_memory_fraction",
)
_ZERO = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved", "utilization")


def _device_module(own: Any) -> Any:
    """torch.get_device_module, for which the accelerator is a GPU."""
    return functools.wraps(own)(lambda device=None: own("cuda" if device is None else device))


_ACCELERATOR: dict[str, Any] = {
    **{name: always(0) for name in ("current_device_index", "current_device_idx")},
    **{name: always(None) for name in ("set_device_index", "set_device_idx")},
    "current_accelerator": always(torch.device("cuda")),
    "device_index": new_class(streams.Context),
    "get_memory_info": always((MEMORY, MEMORY)),
    **{
        name: new
        for name in torch.accelerator.__all__
        for new in [_ATTRIBUTES.get(name, always(0) if name in _ZERO else always(None))]
        if name in _ATTRIBUTES or name in _ZERO or name in _NOTHING
    },
}
"""Replacements for attributes of torch.accelerator, by name."""


_HEURISTICS = "torch._inductor.runtime.triton_heuristics"


class _NoHeuristics(importlib.abc.MetaPathFinder):
    """Make Inductor's tuning decorators raise Unsupported, because they need a GPU.

    The rest of its runtime is plain Triton and Python, and works.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != _HEURISTICS:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: Any) -> None:
                execute(module)
                _refuse(module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _refuse(heuristics: Any) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise Unsupported("inductor")

    # All of its decorators end here.
    heuristics.cached_autotune = refused


def _autocast(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *args, **kwargs)

    return init


def _backward_in(mode: Any) -> Any:
    """Run the autograd engine inside the mode.

    It calls the candidate's own code, and torch has left the mode.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return _run_backward(*args, **kwargs)

    return run


def _registering(original: Any) -> Any:
    """Register a CUDA implementation of an operator for the CPU, in place of one that is for the CPU."""
    for_cuda: set[tuple[str, str]] = set()

    @functools.wraps(original)
    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        key, name = dispatch_key or self.dispatch_key, (self.ns, str(op_name))
        if key == "CUDA":
            for_cuda.add(name)
            return original(self, op_name, fn, "CPU", **options)
        return None if key == "CPU" and name in for_cuda else original(self, op_name, fn, key, **options)

    return impl


_device_context = DeviceContext.__torch_function__


def _default_device(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """A default device of cuda. set_default_device puts it below our mode, where it must not be added again.

    `with torch.device` puts it above.
    """
    if self.device.type == "cuda" and _mode.inside:
        return func(*args, **(kwargs or {}))
    return _device_context(self, func, types, args, kwargs)


def _empty_strided(size: Any, stride: Any, dtype: Any) -> Any:
    return torch.empty_strided(size, stride, dtype=dtype, device=DEVICE)


def install() -> None:
    for name, value in _ATTRIBUTES.items():
        setattr(torch.cuda, name, value)
    for name in _NOTHING:
        setattr(torch.cuda, name, always(None))
    for name in _ZERO:
        setattr(torch.cuda, name, always(0))
    for name in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, name, always(None))
    torch.cuda.nvtx.range = new_class(streams.Context)
    torch.from_numpy, torch.frombuffer = host.from_numpy, host.frombuffer
    torch.version.cuda = "12.8"
    torch.amp.autocast_mode.autocast.__init__ = _autocast(torch.amp.autocast_mode.autocast.__init__)
    DeviceContext.__torch_function__ = _default_device
    torch.library.Library.impl = _registering(torch.library.Library.impl)
    torch._C._cuda_getCurrentRawStream = lambda *args: streams.current().cuda_stream
    torch._C._dynamo.guards._empty_strided_cuda = _empty_strided
    torch.get_device_module = _device_module(torch.get_device_module)
    for name, value in _ACCELERATOR.items():
        setattr(torch.accelerator, name, value)
    warnings.filterwarnings("ignore", message="tl.make_block_ptr is deprecated")
    warnings.filterwarnings("ignore", message="Warning only once for all operators")  # by `_registering`
    # Poison needs deterministic mode; what that mode would warn about is not the candidate's fault.
    warnings.filterwarnings("ignore", message=".*deterministic implementation.*")
    if _HEURISTICS in sys.modules:
        _refuse(sys.modules[_HEURISTICS])
    else:
        sys.meta_path.insert(0, _NoHeuristics())
    torch.autograd._engine_run_backward = _backward_in(_mode)
    _mode.__enter__()
