"""Launch a kernel: bind arguments by Triton's own rules, record the launch, run the grid.

Arguments are specialised as by Triton's CUDA backend (types, 1 and None as constants, divisibility by 16). So
the recorded signature can be compiled elsewhere, and a wrong keyword or a bad num_warps fails as on a GPU.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelmill.evaluate.fake_gpu import host, streams
from kernelmill.evaluate.fake_gpu.driver import TARGET
from kernelmill.evaluate.interpreter import memory
from kernelmill.evaluate.interpreter.language import running, semantic
from kernelmill.evaluate.interpreter.memory import Reach
from kernelmill.evaluate.interpreter.observe import Launch, observer
from kernelmill.evaluate.interpreter.races import Races, Range

GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
_backend = CUDABackend(TARGET)


class _Kernel:
    """What is computed once per jitted function."""

    def __init__(self, interpreted: Any) -> None:
        self.jit = JITFunction(interpreted.fn, **interpreted.kwargs)
        self.bind = create_function_from_signature(self.jit.signature, self.jit.params, _backend)
        self.constexprs = {param.name for param in self.jit.params if param.is_constexpr}
        self.name: str = interpreted.fn.__name__
        self.qualname: str = interpreted.fn.__qualname__
        self.file: str = interpreted.fn.__code__.co_filename
        self.written: set[str] = set()


class Compiled:
    """Returned by a launch or a warmup, in place of triton's CompiledKernel (register counts and so on)."""

    def __init__(self, interpreted: Any, options: Any) -> None:
        self._interpreted = interpreted
        self._options = {"num_warps": options.num_warps, "num_stages": options.num_stages}
        self.n_regs, self.n_spills, self.n_max_threads = 32, 0, 1024
        self.metadata = SimpleNamespace(
            shared=1024, target=TARGET, name=interpreted.__name__, **self._options
        )

    def _init_handles(self) -> None:
        pass

    def __getitem__(self, grid: Any) -> Any:
        def run(*args: Any, stream: Any = None) -> Any:
            return self._interpreted.run(*args, grid=grid, warmup=False, **self._options)

        return run


def _plain(value: Any) -> Any:
    """Convert a constant to a form that JSON can hold."""
    if isinstance(value, tl.constexpr):
        return _plain(value.value)
    if isinstance(value, tl.dtype):
        return f"tl.{_dtype_names.get(value.name, value.name)}"
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    function = getattr(value, "fn", value)
    if hasattr(function, "__qualname__"):
        return {"function": function.__qualname__}
    return {"repr": repr(value)}


_dtype_names = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "fp8e4nv": "float8e4nv",
    "fp8e5": "float8e5",
}


def _path(names: list[str], path: tuple[int, ...]) -> str:
    return ".".join([names[path[0]], *map(str, path[1:])])


def _types(kind: Any) -> Any:
    return [_types(item) for item in kind] if isinstance(kind, tuple) else kind


def _signature(
    kernel: _Kernel, options: Any, types: Any, constants: Any, attrs: Any, given: Any
) -> dict[str, Any]:
    names = kernel.jit.arg_names
    return {
        "kernel": kernel.qualname,
        "signature": {name: _types(kind) for name, kind in types.items()},
        "constexprs": {_path(names, path): _plain(value) for path, value in constants.items()},
        "attrs": [_path(names, path) for path, value in attrs.items() if ["tt.divisibility", 16] in value],
        "num_warps": options.num_warps,
        "num_stages": options.num_stages,
        "options": {
            key: _plain(value)
            for key, value in given.items()
            if key not in names and key not in ("num_warps", "num_stages")
        },
    }


def _tensor(data: Any, kind: Any, dtype: Any) -> Any:
    return tl.core.tensor(stock.TensorHandle(np.array([data], dtype=dtype), kind), kind)


_INTS = {
    "i8": (tl.int8, np.int8),
    "i16": (tl.int16, np.int16),
    "i32": (tl.int32, np.int32),
    "i64": (tl.int64, np.int64),
    "u8": (tl.uint8, np.uint8),
    "u16": (tl.uint16, np.uint16),
    "u32": (tl.uint32, np.uint32),
    "u64": (tl.uint64, np.uint64),
}


def _convert(value: Any, kind: Any, name: str, storages: dict[str, Range]) -> Any:
    """Convert an argument to what the kernel sees: pointers and tensors instead of Python values."""
    if isinstance(value, tuple):
        kinds = kind if isinstance(kind, tuple) else (None,) * len(value)
        items = [
            _convert(item, k, f"{name}.{i}", storages)
            for i, (item, k) in enumerate(zip(value, kinds, strict=True))
        ]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if hasattr(value, "data_ptr"):
        base = getattr(value, "base", value)  # triton.reinterpret wraps a tensor
        storage = base.untyped_storage()
        origin = (storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        storages[name] = origin
        pointer = _tensor(
            value.data_ptr(),
            tl.str_to_ty(kind or stock.triton.runtime.jit.mangle_type(value), None),
            np.uint64,
        )
        pointer.handle.origin = origin
        return pointer
    if isinstance(value, TensorDescriptor):
        strides = [_convert(stride, "i64", name, storages) for stride in value.strides]
        strides[-1] = tl.constexpr(1)
        return semantic.make_tensor_descriptor(
            base=_convert(value.base, None, name, storages),
            shape=[_convert(size, "i32", name, storages) for size in value.shape],
            strides=strides,
            block_shape=[tl.constexpr(size) for size in value.block_shape],
            padding_option=value.padding,
        )
    if isinstance(value, bool):
        return _tensor(value, tl.int1, np.bool_)
    if isinstance(value, int):
        if kind not in _INTS:
            kind = "i32" if -(2**31) <= value < 2**31 else "i64" if -(2**63) <= value < 2**63 else "u64"
        dtype, wanted = _INTS[kind]
        return _tensor(value, dtype, wanted)
    if isinstance(value, float):
        return (
            _tensor(value, tl.float64, np.float64)
            if kind == "fp64"
            else _tensor(value, tl.float32, np.float32)
        )
    return value


def _grid_of(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    sizes = tuple(grid(bound) if callable(grid) else grid)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"grid must have 1 to 3 dimensions, got {len(sizes)}")
    whole = []
    for size, limit in zip(sizes, GRID_LIMITS, strict=False):
        if isinstance(size, float):
            raise TypeError("grid sizes must be integers, got a float")
        if int(size) > limit:
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: grid {sizes}")
        whole.append(max(0, int(size)))
    x, y, z = (*whole, 1, 1)[:3]
    return x, y, z


def _reachable(kernel: _Kernel, bound: dict[str, Any]) -> None:
    """Reject host memory, as triton's launcher does."""
    given = [value for name, value in bound.items() if name not in kernel.constexprs]
    for position, value in enumerate(given):
        items = value if isinstance(value, tuple) else (value,)
        # triton.reinterpret and descriptors wrap a tensor.
        if any(host.is_host(getattr(item, "base", item)) for item in items):
            raise ValueError(f"Pointer argument (at {position}) cannot be accessed from Triton (cpu tensor?)")


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    kernel = self.__dict__.get("_kernelmill")
    if kernel is None:
        kernel = self.__dict__["_kernelmill"] = _Kernel(self)
    config, observer.next_config = observer.next_config, None
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        bound, specialization, given = kernel.bind(*args, **kwargs)
        options, types, constants, attrs = kernel.jit._pack_args(
            _backend, kwargs, bound, specialization, given
        )
    compiled = Compiled(self, options)
    if warmup:
        return compiled
    _reachable(kernel, bound)
    size = _grid_of(grid, bound)
    programs = math.prod(size)
    suppressed = observer.suppressed(kernel.name, kernel.qualname)
    if observer.active:
        index = observer.signature_index(_signature(kernel, options, types, constants, attrs, given))
        observer.launched(
            Launch(kernel.name, kernel.qualname, kernel.file, size, programs, index, config, suppressed)
        )
    if programs:
        streams.launched()
    if not suppressed:
        observer.count_programs(programs)
        _execute(self, kernel, bound, types, size)
    return compiled


def _execute(interpreted: Any, kernel: _Kernel, bound: Any, types: Any, size: tuple[int, int, int]) -> None:
    storages: dict[str, Range] = {}
    with torch._C.DisableTorchFunction():
        arguments = {
            name: getattr(value, "value", value)
            if name in kernel.constexprs and isinstance(value, tl.constexpr)
            else value
            if name in kernel.constexprs
            else _convert(value, types[name], name, storages)
            for name, value in bound.items()
        }
    function = interpreted.rewrite()
    builder = stock.interpreter_builder
    builder.set_grid_dim(*size)
    programs = itertools.product(*map(range, size))
    if observer.order == "reverse":
        programs = itertools.product(*(range(n - 1, -1, -1) for n in size))
    races = None
    if observer.active and math.prod(size) > 1:
        races = Races(kernel.name, size, storages, kernel.written)
    memory.state.reach = Reach(kernel.name, storages, races)
    running.depth += 1
    try:
        with np.errstate(all="ignore"):
            for at in programs:
                builder.grid_idx = at
                if races is not None:
                    races.enter(*at)
                function(**arguments)
    finally:
        running.depth -= 1
        memory.state.reach = None


RUN = _execute.__code__
"""While a frame with this code is on the stack, a kernel is running."""


def install() -> None:
    stock.InterpretedFunction.run = _run
