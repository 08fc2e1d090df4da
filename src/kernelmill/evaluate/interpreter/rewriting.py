"""Rewrite kernels so that Python runs them as the compiler reads them.

`and`, `or` and `not` of tensors are element-wise logical operations, and loop variables of range() are
tensors. A kernel defined inside a function sees that function's variables. Only a few private names are added
to the candidate's module.
"""

from __future__ import annotations

import ast
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate import kernel_source
from kernelmill.evaluate.interpreter.handles import Array, Handle
from kernelmill.evaluate.interpreter.programs import group

semantic = stock.interpreter_semantic
_PREFIX = "__kernelmill_"


class BlockCondition(TypeError):
    """A branch on a tensor of more than one element: an error on a GPU as well."""


def _all_of(*operands: Callable[[], Any]) -> Any:
    return _logical(operands, stop_at=False, join=semantic.logical_and)


def _any_of(*operands: Callable[[], Any]) -> Any:
    return _logical(operands, stop_at=True, join=semantic.logical_or)


def _logical(operands: tuple[Callable[[], Any], ...], stop_at: bool, join: Callable[[Any, Any], Any]) -> Any:
    """Evaluate like the compiler: plain values may end the chain, tensors are all evaluated and joined."""
    tensors = []
    value: Any = None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.core.tensor):
            tensors.append(value)
        elif bool(value) is stop_at:
            return value
    if not tensors:
        return value
    result = tensors[0]
    for item in tensors[1:]:
        result = join(result, item)
    return result


def _condition(value: Any) -> Any:
    """Check what a branch or a loop tests.

    Tensor.__bool__ itself must stay lenient, because Triton's own code uses it.
    """
    if isinstance(value, tl.core.tensor) and math.prod(value.handle.shape) != 1:
        raise BlockCondition("a tensor of more than one element cannot be a condition")
    return value


def _negation(value: Any) -> Any:
    return semantic.not_(value) if isinstance(value, tl.core.tensor) else not value


def _loop(*bounds: Any, **options: Any) -> Iterator[Any]:
    """range() and tl.range(): the loop variable is a tensor, as on a GPU."""
    start, stop, step = 0, 0, 1
    if "arg1" in options:
        bounds = (*bounds, options["arg1"])
    if "arg2" in options:
        bounds = (*bounds, options["arg2"])
    if len(bounds) == 1:
        stop = bounds[0]
    elif len(bounds) == 2:
        start, stop = bounds
    else:
        start, stop, step = bounds[:3]
    if options.get("step") is not None:
        step = options["step"]
    limits = [_bound(item) for item in (start, stop, step)]
    wide = any(item.dtype.itemsize > 4 for item in limits)
    first, last, by = (item.astype(np.int64) for item in limits)
    if not by.all():
        raise ValueError("range() arg 3 must not be zero")
    trips = int(group.one(np.maximum(0, (last - first + by - np.sign(by)) // by)))
    kind, wanted = (tl.int64, np.int64) if wide else (tl.int32, np.int32)
    for trip in range(trips):
        yield tl.core.tensor(Handle((first + trip * by).astype(wanted), kind), kind)


def _bound(value: Any) -> Array:
    """A bound of a loop, for each program: of 64 bits if it is so on a GPU."""
    if isinstance(value, tl.core.tensor):
        if math.prod(value.handle.shape) != 1 or not value.dtype.is_int():
            raise TypeError(f"a bound of range() must be an integer, not {value.type}")
        return value.handle.data.reshape(-1)  # type: ignore[no-any-return]
    number = operator.index(value)
    return np.array([number], dtype=np.int32 if -(2**31) <= number < 2**31 else np.int64)


def _again(value: Any) -> Any:
    """Check what a `while` loop tests."""
    group.spun()
    return _condition(value)


def _value(constant: Any) -> Any:
    """`constant.value`: constants are plain values here, and constexpr for the compiler."""
    return getattr(constant, "value", constant)


_HELPERS: dict[str, Any] = {
    f"{_PREFIX}and": _all_of,
    f"{_PREFIX}or": _any_of,
    f"{_PREFIX}not": _negation,
    f"{_PREFIX}range": _loop,
    f"{_PREFIX}condition": _condition,
    f"{_PREFIX}again": _again,
    f"{_PREFIX}value": _value,
    f"{_PREFIX}tensor": semantic.to_tensor,
}


def _helper(
    name: str, arguments: list[ast.expr], place: ast.AST, keywords: list[ast.keyword] | None = None
) -> ast.Call:
    """A call of a helper, with the line and column of `place`."""
    function = ast.copy_location(ast.Name(id=_PREFIX + name, ctx=ast.Load()), place)
    return ast.copy_location(ast.Call(func=function, args=arguments, keywords=keywords or []), place)


def _lazy(expression: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(args=nothing, body=expression), expression)


class _Transformer(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if len(node.targets) > 1:
            raise ValueError("simultaneous multiple assignment is not supported")
        check_type = ast.copy_location(ast.Constant(value=False), node)
        node.value = _helper("tensor", [node.value, check_type], node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        reads = node.attr == "value" and isinstance(node.ctx, ast.Load)
        return _helper("value", [node.value], node) if reads else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        return _helper(name, [_lazy(value) for value in node.values], node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _helper("not", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def _visit_test(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = _helper("condition", [node.test], node.test)
        return node  # type: ignore[no-any-return]

    visit_If = visit_IfExp = _visit_test

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        node.test = _helper("again", [node.test], node.test)
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        call = node.iter
        if isinstance(call, ast.Call):
            plain = isinstance(call.func, ast.Name) and call.func.id == "range"
            from_tl = isinstance(call.func, ast.Attribute) and call.func.attr == "range"
            if plain or from_tl:
                node.iter = _helper("range", call.args, call, call.keywords)
        return node


_compiled: dict[types.CodeType, types.CodeType | None] = {}
_rewritten: dict[Callable[..., Any], Callable[..., Any]] = {}


def rewritten(function: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """The function as Python shall run it; itself, if its source is not known."""
    found = _rewritten.get(function)
    if found is None:
        code = function.__code__
        if code not in _compiled:
            definition = kernel_source.definition(function)
            _compiled[code] = None if definition is None else _compile(code, definition)
        module = _compiled[code]
        found = _rewritten[function] = function if module is None else _made_again(function, module, options)
    return found


def _compile(code: types.CodeType, definition: ast.FunctionDef) -> types.CodeType:
    """A module that defines the function. One made inside a function is made by a factory of its variables."""
    definition.decorator_list = []
    body: ast.stmt = _Transformer().visit(definition)
    if code.co_freevars:
        parameters = ", ".join(code.co_freevars)
        factory = parse_module(f"def {_PREFIX}factory({parameters}): return {code.co_name}").body[0]
        assert isinstance(factory, ast.FunctionDef)
        factory.body.insert(0, body)
        body = factory
    module = ast.Module(body=[body], type_ignores=[])
    return compile(module, code.co_filename, "exec")


def _made_again(function: Any, module: types.CodeType, options: dict[str, Any]) -> Callable[..., Any]:
    function.__globals__.update(_HELPERS)
    namespace: dict[str, Any] = dict(options)
    exec(module, function.__globals__, namespace)
    if function.__closure__:
        cells = [cell.cell_contents for cell in function.__closure__]
        return namespace[f"{_PREFIX}factory"](*cells)  # type: ignore[no-any-return]
    return namespace[function.__code__.co_name]  # type: ignore[no-any-return]
