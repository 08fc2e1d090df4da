"""Patch triton.language once, and rewrite kernels so that Python runs them as the compiler reads them.

The stock interpreter patches and restores the language at every launch, and patches it again at every call of
a device function (tl.sum, tl.cdiv, ...). This is most of its time. Here it is patched once.

The rewriting adds what the compiler does and Python does not: `and`, `or` and `not` of tensors are
element-wise logical operations, and loop variables of range() are tensors. A kernel defined inside a function
sees that function's variables. Only a few private names are added to the candidate's module.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as stock

from kernelmill.base.python_text import parse_module

semantic = stock.interpreter_semantic
_PREFIX = "__kernelmill_"


class BlockCondition(TypeError):
    """A branch on a tensor of more than one element: an error on a GPU as well."""


class _Running:
    """Whether a kernel is running: device functions may be called only then."""

    depth = 0


running = _Running()


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
    if isinstance(value, tl.core.tensor) and value.handle.data.size != 1:
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
    for index in range(start, stop, step):
        wide = not -(2**31) <= index < 2**31
        dtype = tl.int64 if wide else tl.int32
        data = np.array([index], dtype=np.int64 if wide else np.int32)
        yield tl.core.tensor(stock.TensorHandle(data, dtype), dtype)


_HELPERS: dict[str, Any] = {
    f"{_PREFIX}and": _all_of,
    f"{_PREFIX}or": _any_of,
    f"{_PREFIX}not": _negation,
    f"{_PREFIX}range": _loop,
    f"{_PREFIX}condition": _condition,
    f"{_PREFIX}tensor": semantic.to_tensor,
}


def _helper(name: str, arguments: list[ast.expr], keywords: list[ast.keyword] | None = None) -> ast.Call:
    return ast.Call(func=ast.Name(id=_PREFIX + name, ctx=ast.Load()), args=arguments, keywords=keywords or [])


def _lazy(expression: ast.expr) -> ast.Lambda:
    nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=nothing, body=expression)


class _Transformer(ast.NodeTransformer):
    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        self.generic_visit(node)
        if len(node.targets) > 1:
            raise ValueError("simultaneous multiple assignment is not supported")
        node.value = _helper("tensor", [node.value, ast.Constant(value=False)])
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "and" if isinstance(node.op, ast.And) else "or"
        return _helper(name, [_lazy(value) for value in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _helper("not", [node.operand]) if isinstance(node.op, ast.Not) else node

    def _visit_test(self, node: Any) -> ast.AST:
        self.generic_visit(node)
        node.test = _helper("condition", [node.test])
        return node  # type: ignore[no-any-return]

    visit_If = visit_While = visit_IfExp = _visit_test

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        call = node.iter
        if isinstance(call, ast.Call):
            plain = isinstance(call.func, ast.Name) and call.func.id == "range"
            from_tl = isinstance(call.func, ast.Attribute) and call.func.attr == "range"
            if plain or from_tl:
                node.iter = _helper("range", call.args, call.keywords)
        return node


def _find_def(self: Any, lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines, 1) if line.strip().startswith("def ")), 0)


def _compile_and_exec(self: Any, tree: ast.Module) -> Any:
    function = self.fn
    free = function.__code__.co_freevars
    if free:
        # A kernel made inside a function: pass that function's variables as the parameters of a factory.
        parameters = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(arg=name) for name in free],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[],
        )
        body: list[ast.stmt] = [*tree.body, ast.Return(value=ast.Name(id=function.__name__, ctx=ast.Load()))]
        factory = parse_module(f"def {_PREFIX}factory(): pass").body[0]
        assert isinstance(factory, ast.FunctionDef)
        factory.args, factory.body = parameters, body
        tree = ast.Module(body=[factory], type_ignores=[])
        ast.fix_missing_locations(tree)
    function.__globals__.update(_HELPERS)
    namespace: dict[str, Any] = dict(self.kwargs)
    exec(compile(tree, filename=self.filename, mode="exec"), function.__globals__, namespace)
    if free:
        cells = [cell.cell_contents for cell in function.__closure__]
        return namespace[f"{_PREFIX}factory"](*cells)
    return namespace[function.__name__]


def _device_call(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not running.depth:
        raise RuntimeError("Cannot call @triton.jit'd outside of the scope of a kernel")
    return self.rewrite()(*args, **kwargs)


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


def bind_builtins(package: Any) -> None:
    """Permanently bind every builtin of a module or class to the interpreter's semantic."""
    for name, member in inspect.getmembers(package):
        if tl.core.is_builtin(member):
            setattr(package, name, _bind(member))


class _Scope:
    """What the stock patching functions write to; nothing is ever restored."""

    @staticmethod
    def set_attr(obj: Any, name: str, value: Any) -> None:
        setattr(obj, name, value)

    @staticmethod
    def restore() -> None:
        pass


def install() -> None:
    for package in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base):
        bind_builtins(package)
    stock._patch_lang_tensor(tl.tensor, _Scope)
    # Triton 3.6 asks NumPy for the int of a one-element array, which newer NumPy rejects.
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    for package in (tl, tl.core):
        stock._patch_lang_core(package, _Scope)
    stock._patch_lang = lambda fn: _Scope
    stock.FunctionRewriter.ast_transformer = _Transformer()
    stock.FunctionRewriter._find_def = _find_def
    stock.FunctionRewriter._compile_and_exec = _compile_and_exec
    stock.InterpretedFunction.__call__ = _device_call
