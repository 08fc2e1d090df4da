"""Patch triton.language once.

The stock interpreter patches and restores the language at every launch, and patches it again at every call of
a device function (tl.sum, tl.cdiv, ...). This is most of its time. Here it is patched once.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.evaluate.interpreter.handles import Array, full
from kernelmill.evaluate.interpreter.operations.blocks import transposed
from kernelmill.evaluate.interpreter.programs import group
from kernelmill.evaluate.interpreter.rewriting import rewritten
from kernelmill.evaluate.kernel_source import source_lines

semantic = stock.interpreter_semantic


class _Running:
    """Whether a kernel is running: device functions may be called only then."""

    depth = 0


running = _Running()


def _rewrite(self: Any) -> Any:
    """The rewritten function. Launches call `rewritten` themselves: only debugging tools ask for this."""
    lines, first = source_lines(self.fn)
    before = next((number for number, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    self.rewriter.filename, self.rewriter.def_file_lineno = self.fn.__code__.co_filename, first + before
    return rewritten(self.fn, self.kwargs)


def _device_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not running.depth:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return rewritten(self.fn, self.kwargs)(*args, **kwargs)


_PACKAGES = (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base)
# The wrapper that tl.core.builtin adds. It checks that _semantic was given, which is always true here.
_CHECKED = tl.core.load.__code__


def _bind(member: Any) -> Any:
    function = member.__wrapped__ if getattr(member, "__code__", None) is _CHECKED else member

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs["_semantic"] = semantic
        return function(*args, **kwargs)

    call.__name__ = getattr(member, "__name__", "builtin")
    call.__doc__ = member.__doc__
    return call


@functools.cache
def _bound_builtins(package: Any) -> list[tuple[str, Any]]:
    members = inspect.getmembers(package)
    return [(name, _bind(member)) for name, member in members if tl.core.is_builtin(member)]


def bind_builtins(package: Any) -> None:
    """Permanently bind every builtin of a module or class to the interpreter's semantic."""
    for name, bound in _bound_builtins(package):
        setattr(package, name, bound)


def _constants_leave_tensors_alone() -> None:
    """Have `constant * tensor` be a tensor, as the compiler does; Python would ask the constant first."""
    for name in _ARITHMETIC:
        setattr(tl.constexpr, f"__{name}__", _arithmetic(getattr(tl.constexpr, f"__{name}__"), name))


def _arithmetic(own: Any, name: str) -> Any:
    @functools.wraps(own)
    def operate(self: Any, other: Any) -> Any:
        if isinstance(other, tl.tensor):
            return getattr(operator, _OPERATORS.get(name, name))(self.value, other)
        return own(self, other)

    return operate


_ARITHMETIC = (
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "and",
    "or",
    "xor",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
)
_OPERATORS = {"and": "and_", "or": "or_"}


def prepare(*packages: Any) -> None:
    """Do in advance what `install` and the first kernels need: find builtins, rewrite Triton's own functions."""
    for package in (*_PACKAGES, *packages):
        _bound_builtins(package)
    for module in (tl.standard, tl.random):
        for member in list(vars(module).values()):
            if isinstance(member, stock.InterpretedFunction):
                rewritten(member.fn, member.kwargs)


class _Scope:
    """What the stock patching functions write to; nothing is ever restored."""

    @staticmethod
    def set_attr(obj: Any, name: str, value: Any) -> None:
        setattr(obj, name, value)

    @staticmethod
    def restore() -> None:
        pass


def _int_of(tensor: Any) -> int:
    return int(group.one(tensor.handle.data))


def _bool_of(tensor: Any) -> bool:
    """Only scalars have a truth value; Triton's own code asks for that of blocks, too."""
    handle = tensor.handle
    return bool(group.one(handle.data)) if math.prod(handle.shape) == 1 else True


def _shown(handle: Any) -> Array:
    """What is printed of a value: it is that of one program."""
    group.order_matters()
    shown: Array = full(handle)[0] if handle.shape else handle.data
    return shown


def _print(self: Any, prefix: str, hex: bool, values: Any, is_signed: Any) -> None:
    message = " ".join([str(tuple(self.grid_idx)), prefix] if prefix else [str(tuple(self.grid_idx))])
    formatter: Any = {"all": lambda x: f"0x{x:02x}"} if hex else None
    for value in values:
        print(message, np.array2string(_shown(value), formatter=formatter))


def _assert(self: Any, condition: Any, message: str) -> None:
    if not condition:
        group.order_matters()
        raise AssertionError(f"{message}")


def _assume(self: Any, condition: Any) -> None:
    _assert(self, condition, "Assume failed")


def install() -> None:
    for package in _PACKAGES:
        bind_builtins(package)
    stock._patch_lang_tensor(tl.tensor, _Scope)
    _constants_leave_tensors_alone()
    tl.tensor.__index__ = _int_of
    tl.tensor.__bool__ = _bool_of
    tl.tensor.__repr__ = lambda self: repr(_shown(self.handle))
    tl.tensor.__str__ = lambda self: str(_shown(self.handle))
    tl.tensor.T = property(transposed)
    stock.InterpreterBuilder.create_print = _print
    stock.InterpreterBuilder.create_assert = _assert
    stock.InterpreterBuilder.create_assume = _assume
    for package in (tl, tl.core):
        stock._patch_lang_core(package, _Scope)
    stock._patch_lang = lambda fn: _Scope
    stock.InterpretedFunction.rewrite = _rewrite
    stock.InterpretedFunction.__call__ = _device_call
