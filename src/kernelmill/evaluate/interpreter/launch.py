"""Launch a kernel: bind arguments by Triton's own rules, record the launch, run the grid.

Arguments are specialised as by Triton's CUDA backend (types, 1 and None as constants, divisibility by 16). So
the recorded signature can be compiled elsewhere, and a wrong keyword or a bad num_warps fails as on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import json
import math
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import interpreter as stock
from triton.runtime import jit
from triton.runtime.errors import InterpreterError
from triton.runtime.jit import JITFunction, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelmill.evaluate.fake_gpu import host, streams
from kernelmill.evaluate.fake_gpu.driver import TARGET
from kernelmill.evaluate.interpreter.handles import Handle, Pointer, Storage
from kernelmill.evaluate.interpreter.language import running, semantic
from kernelmill.evaluate.interpreter.memory import access
from kernelmill.evaluate.interpreter.memory.access import Reach
from kernelmill.evaluate.interpreter.memory.races import Touched
from kernelmill.evaluate.interpreter.observe import Launch, observer
from kernelmill.evaluate.interpreter.rewriting import rewritten
from kernelmill.evaluate.interpreter.running import Programs
from kernelmill.evaluate.kernel_source import key_of, source_lines

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
        self.specialised: dict[tuple[str, str], _Specialised] = {}
        self.written: set[str] = set()
        self.together = True
        """Whether its programs have been able to run together so far."""


class _Specialised(NamedTuple):
    """What Triton makes of the arguments of a launch, the same for launches of the same types and constants."""

    options: Any
    types: Any
    signature: dict[str, Any]
    text: str
    """The signature as JSON."""


class Compiled:
    """Returned by a launch or a warmup, in place of triton's CompiledKernel (register counts and so on)."""

    def __init__(self, interpreted: Any, options: Any) -> None:
        self._interpreted = interpreted
        chosen = {"num_warps": options.num_warps, "num_stages": options.num_stages}
        # A kernel may have parameters of these names, which come with its arguments.
        self._options = {name: chosen[name] for name in chosen if name not in interpreted.arg_names}
        self.n_regs, self.n_spills, self.n_max_threads = 32, 0, 1024
        self.name = interpreted.__name__
        self.metadata = SimpleNamespace(shared=1024, target=TARGET, name=self.name, **chosen)

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
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    function = getattr(value, "fn", value)
    if hasattr(function, "__qualname__"):
        return {"function": key_of(function)}
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
        "kernel": key_of(kernel.jit.fn),
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
    return tl.core.tensor(Handle(np.array([data], dtype=dtype), kind), kind)


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


def _constant(value: Any) -> Any:
    """Convert a constexpr argument to what the kernel sees."""
    if isinstance(value, tl.constexpr):
        return _constant(value.value)
    if isinstance(value, tuple):
        items = map(_constant, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return value.interpreted if isinstance(value, JITFunction) else value


@functools.cache
def _pointer_type(kind: str) -> Any:
    """One object for each type, so that blocks of pointers share theirs (`speed`)."""
    return tl.str_to_ty(kind, None)


def _convert(value: Any, kind: Any, name: str, storages: dict[str, Storage]) -> Any:
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
        type_ = _pointer_type(kind or stock.triton.runtime.jit.mangle_type(value))
        storage = storages[name] = _storage(base.untyped_storage(), name, storages)
        pointer = Pointer(np.zeros(1, dtype=np.int64), type_, (), value.data_ptr(), storage)
        return tl.core.tensor(pointer, type_)
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
    return _constant(value)


def _storage(storage: Any, name: str, storages: dict[str, Storage]) -> Storage:
    """The storage, which several arguments may share."""
    low, high = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    same = (one for one in storages.values() if (one.low, one.high) == (low, high))
    return next(same, None) or Storage(name, low, high)


def _grid_of(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    sizes = tuple(grid(bound) if callable(grid) else grid)
    if not sizes:
        raise ValueError("grid must have at least one dimension")
    whole = []
    for size, limit in zip(sizes, GRID_LIMITS, strict=False):  # a GPU ignores more than three, too
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


def _kernel_of(interpreted: Any) -> _Kernel:
    kernel = interpreted.__dict__.get("_kernelmill")
    if kernel is None:
        kernel = interpreted.__dict__["_kernelmill"] = _Kernel(interpreted)
    return kernel  # type: ignore[no-any-return]


def _specializable(value: Any) -> Any:
    """The argument with functions in tuples as Triton specialises them; `_convert` undoes it."""
    if isinstance(value, tuple):
        items = map(_specializable, value)
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, stock.InterpretedFunction):
        function = _kernel_of(value).jit
        function.interpreted = value
        return function
    return value


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    kernel = _kernel_of(self)
    config, observer.next_config = observer.next_config, None
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    args, kwargs = _specializable(args), {name: _specializable(value) for name, value in kwargs.items()}
    with torch._C.DisableTorchFunction():
        bound, specialization, given = kernel.bind(*args, **kwargs)
        key = str(specialization), str(given)
        if key not in kernel.specialised:
            options, types, constants, attrs = kernel.jit._pack_args(
                _backend, kwargs, bound, specialization, given
            )
            signature = _signature(kernel, options, types, constants, attrs, given)
            text = json.dumps(signature, sort_keys=True)
            kernel.specialised[key] = _Specialised(options, types, signature, text)
        specialised = kernel.specialised[key]
    compiled = Compiled(self, specialised.options)
    if warmup:
        return compiled
    _reachable(kernel, bound)
    size = _grid_of(grid, bound)
    programs = math.prod(size)
    suppressed = observer.suppressed(kernel.name, kernel.qualname)
    if observer.active:
        index = observer.signature_index(specialised.signature, specialised.text)
        observer.launched(
            Launch(kernel.name, kernel.qualname, kernel.file, size, programs, index, config, suppressed)
        )
    if programs:
        streams.launched()
        if observer.on_launch is not None:
            observer.on_launch(self, bound, size, given)
    if not suppressed:
        _execute(self, kernel, bound, specialised.types, size)
    return compiled


def _execute(interpreted: Any, kernel: _Kernel, bound: Any, types: Any, size: tuple[int, int, int]) -> None:
    storages: dict[str, Storage] = {}
    with torch._C.DisableTorchFunction():
        arguments = {
            name: _constant(value)
            if name in kernel.constexprs
            else _convert(value, types[name], name, storages)
            for name, value in bound.items()
        }
    function = rewritten(interpreted.fn, interpreted.kwargs)
    stock.interpreter_builder.set_grid_dim(*size)
    numbers = np.arange(1, math.prod(size) + 1, dtype=np.int32)
    if observer.order == "reverse":
        numbers = numbers[::-1]
    touched = None
    if observer.strict or (len(numbers) > 1 and (kernel.together or observer.active)):
        touched = Touched(kernel.name, size, storages, kernel.written)
    access.state.reach = reach = Reach(kernel.name, storages, touched)
    programs = Programs(functools.partial(function, **arguments), size, reach, touched)
    running.depth += 1
    try:
        with np.errstate(all="ignore"):
            kernel.together = programs.run(numbers, kernel.together and len(numbers) > 1) or len(numbers) == 1
    except Exception as error:
        raise InterpreterError(repr(error)) from error
    finally:
        running.depth -= 1
        del access.state.reach


RUN = _execute.__code__
"""While a frame with this code is on the stack, a kernel is running."""


def _nothing(pointer: Any, number: Any) -> None:
    """A kernel to bind arguments to."""


def prepare() -> None:
    """Do in advance what the first launch needs: Triton imports much when it first looks at arguments."""
    function = JITFunction(_nothing)
    bind = create_function_from_signature(function.signature, function.params, _backend)
    _, specialization, given = bound = bind(torch.zeros(1), 3)
    function._pack_args(_backend, {}, bound[0], specialization, given)


def _keep_memory() -> None:
    """Let the C library keep freed memory: the pages of new arrays would cost more than computing them."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc's
        trim_threshold, mmap_threshold = -1, -3
        library.mallopt(mmap_threshold, 1 << 30)
        library.mallopt(trim_threshold, 1 << 30)


def _read_sources_quickly() -> None:
    """Have Triton find a kernel's source by its syntax tree, which is needed anyway."""
    ours = ModuleType("inspect")
    ours.__dict__.update(vars(inspect), getsourcelines=source_lines)
    jit.inspect = ours


def install() -> None:
    _keep_memory()
    _read_sources_quickly()
    stock.InterpretedFunction.run = _run
