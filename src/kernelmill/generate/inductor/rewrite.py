"""The host code of Inductor's output as the body of a readable `forward`."""

from __future__ import annotations

import ast
import contextlib
import copy
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from kernelmill.base.python_text import parse_expression, parse_module
from kernelmill.generate.inductor import convolution
from kernelmill.generate.inductor.kernels import Kernel, Unwritable, made_plain, read_kernel
from kernelmill.generate.inductor.variants import Variant

_DROPPED = frozenset({"assert_size_stride", "assert_alignment", "args.clear", "torch.cuda.set_device"})
_TRIES = 3
_MOST_TRIES = 1000
_LONG_COUNT = 40
_WIDTH = 100


@dataclass
class Rewritten:
    """Source text: the functions before the class, and the statements of `forward`."""

    functions: list[str]
    body: list[str]
    results: list[str]
    extern: list[str]
    uses_libdevice: bool


@dataclass
class _Body:
    """`forward`, built statement by statement."""

    inputs: list[str]
    """The name in `forward` of each input of the graph."""
    kernels: dict[str, Kernel]
    device: str
    variant: Variant
    renamed: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    """Variables that hold all sizes of an input, mapped to that input."""
    lines: list[str] = field(default_factory=list)
    extern: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    convolutions: dict[str, str] = field(default_factory=dict)
    """Kernels written here instead of by Inductor, by name."""
    buffers: dict[str, ast.expr] = field(default_factory=dict)
    """The sizes of allocated buffers."""
    waiting: dict[str, convolution.Call] = field(default_factory=dict)
    """Calls whose output size is not known yet, by output name."""
    named: int = 0
    counts: int = 0
    symbols: int = 0
    """The number of sizes read from inputs."""

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.With(body=inner):
                for one in inner:
                    self.statement(one)
            case ast.Delete():
                pass
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                self.renamed |= {
                    ast.unparse(name): given for name, given in zip(names, self.inputs, strict=True)
                }
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value)
            case ast.Return(value=ast.Tuple(elts=values)):
                self.results = [self._text(value) for value in values]
            case _:
                raise Unwritable(f"the statement {ast.unparse(node)[:80]!r}")

    def _assign(self, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Name(id="copy_if_misaligned" | "get_raw_stream")):
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="size"), args=[]):
                self.sizes[name] = self.renamed[owner]
                return
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=place)) if (
                owner in self.sizes
            ):
                self._symbol(name, f"{self.sizes[owner]}.shape[{place!r}]")
                return
            case ast.Name(id=other):
                if other in self.renamed and name.startswith("s"):
                    self._symbol(name, self.renamed[other])
                else:
                    self.renamed[name] = self.renamed.get(other, other)
                return
            case ast.Call(args=args) if ast.unparse(value.func) == convolution.CALLED:
                self._convolution(name, args)
                return
            case ast.Call(func=ast.Name(id="empty_strided_cuda"), args=[size, stride, dtype]):
                self.lines.append(f"{name} = {self._empty(size, stride, dtype)}")
                self.buffers[name] = size
                return
        text = self._text(value)
        if name.endswith("numel"):
            self.counts += 1
            self.renamed[name] = name = f"count{self.counts}"
            text = self._count(value, text)
        self.lines.append(f"{name} = {text}")

    def _count(self, value: ast.expr, text: str) -> str:
        """Write a long expression as a buffer's element count, if it equals one."""
        if len(text) > _LONG_COUNT:
            for name, size in reversed(self.buffers.items()):
                if all(count == math.prod(sizes) for count, sizes in _tried(value, size)):
                    return f"{self.renamed.get(name, name)}.numel()"
        return text

    def _symbol(self, name: str, source: str) -> None:
        self.renamed[name] = short = f"n{self.symbols}"
        self.symbols += 1
        self.lines.append(f"{short} = {source}")

    def _call(self, call: ast.Call) -> None:
        called = ast.unparse(call.func)
        if called == "assert_size_stride" and (name := self._text(call.args[0])) in self.waiting:
            self.buffers[name] = call.args[1]
            self._convolve(name, self.waiting.pop(name), self._text(call.args[1]))
        if called in _DROPPED:
            return
        owner = called.removesuffix(".run")
        if owner in self.kernels:
            self._launch(self.kernels[owner], call.args)
        else:
            self.lines.append(self._text(call))

    def _launch(self, kernel: Kernel, args: list[ast.expr]) -> None:
        given = [self._text(arg) for arg in args]
        count = len(kernel.arguments)
        values, rest = given[:count], given[count:]
        by_name = dict(zip(kernel.arguments, values, strict=True))
        if kernel.grid == "FixedGrid":
            grid = rest
        elif kernel.grid == "Grid1D":
            grid = [_blocks_of(by_name["xnumel"], kernel.blocks["XBLOCK"])]
        elif kernel.grid in ("Grid2D", "Grid2DWithYZOverflow"):
            across, down = (
                _blocks_of(by_name[f"{axis}numel"], kernel.blocks[f"{axis.upper()}BLOCK"]) for axis in "xy"
            )
            grid = [across, down]
            if kernel.grid.endswith("Overflow"):
                grid = [across, f"min({down}, 65535)", f"triton.cdiv({down}, 65535)"]
        else:
            raise Unwritable(f"a grid of kind {kernel.grid}")
        while len(grid) > 1 and grid[-1] == "1":
            grid = grid[:-1]
        options = [f"{block}={size}" for block, size in kernel.blocks.items()]
        options.append(f"num_warps={kernel.warps}")
        options += [f"num_stages={kernel.stages}"] if kernel.stages else []
        shape = f"({', '.join(grid)},)" if len(grid) == 1 else f"({', '.join(grid)})"
        self._launched(kernel.name, shape, [*values, *options])

    def _launched(self, name: str, grid: str, arguments: list[str]) -> None:
        line = f"{name}[{grid}]({', '.join(arguments)})"
        if len(line) > _WIDTH:
            self.lines.append(f"grid = {grid}")
            line = _broken(f"{name}[grid](", arguments)
        self.lines.append(line)

    def _convolution(self, name: str, args: list[ast.expr]) -> None:
        """Hold the call back: its sizes are in the assertion that follows."""
        texts = [self._text(arg) for arg in args]
        lists = [[self._text(one) for one in arg.elts] if isinstance(arg, ast.List) else [] for arg in args]
        tensors = [self._name(text) for text in texts[:3]]
        stride, padding, dilation = lists[3:6]
        bias = None if texts[2] == "None" else tensors[2]
        call = convolution.Call(
            tensors[0],
            tensors[1],
            bias,
            stride,
            padding,
            dilation,
            transposed=texts[6] == "True",
            groups=texts[8],
            window=lists[9],
            single=texts[10] == "True",
        )
        self.waiting[name] = call

    def _convolve(self, name: str, call: convolution.Call, size: str) -> None:
        self.convolutions[call.name] = convolution.kernel(call)
        self.lines.append(f"{name} = torch.empty({size}, device={self.device}, dtype={call.x}.dtype)")
        self._launched(call.name, *convolution.launch(call, name, self.variant))

    def _name(self, text: str) -> str:
        """Give a name to a tensor that the code uses more than once."""
        if not text.isidentifier() and "(" in text:
            self.named += 1
            self.lines.append(f"view{self.named} = {text}")
            return f"view{self.named}"
        return text

    def _empty(self, size: ast.expr, stride: ast.expr, dtype: ast.expr) -> str:
        where = f"device={self.device}, dtype={ast.unparse(dtype)}"
        if _contiguous(size, stride):
            return f"torch.empty({self._text(size)}, {where})"
        return f"torch.empty_strided({self._text(size)}, {self._text(stride)}, {where})"

    def _text(self, node: ast.expr) -> str:
        return ast.unparse(_Renamed(self).visit(copy.deepcopy(node)))


class _Renamed(ast.NodeTransformer):
    """Renames variables in expressions to those of the new code."""

    def __init__(self, body: _Body) -> None:
        self._body = body

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = self._body.renamed.get(node.id)
        return node if name is None else parse_expression(name)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Recognise `(63 + n) // 64` as a number of blocks."""
        self.generic_visit(node)
        match node:
            case ast.BinOp(
                left=ast.BinOp(left=ast.Constant(value=int(rest)), op=ast.Add(), right=count),
                op=ast.FloorDiv(),
                right=ast.Constant(value=int(block)),
            ) if block > 1 and rest == block - 1:
                return parse_expression(f"triton.cdiv({ast.unparse(count)}, {block})")
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        called = ast.unparse(node.func)
        if called.startswith(("extern_kernels.", "torch.ops.", "aten.")):
            self._body.extern.append(called)
        self.generic_visit(node)
        if called == "reinterpret_tensor":
            node.func = parse_expression("torch.as_strided")
        elif called.startswith("aten."):
            node.func = parse_expression(f"torch.ops.{called}")
        elif called.startswith("extern_kernels."):
            node.func = parse_expression(f"torch.{called.partition('.')[2]}")
        return node


def rewrite(text: str, inputs: list[str], device: str, variant: Variant) -> Rewritten:
    """Rewrite Inductor's source. `inputs` are the names in `forward` of the graph's inputs, in order."""
    module = parse_module(text)
    kernels: dict[str, Kernel] = {}
    taken: set[str] = set()
    call: ast.FunctionDef | None = None
    for node in module.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr="triton"),
                    args=[_, ast.Constant(value=str(source)), *_],
                ),
            ):
                kernels[name] = read_kernel(name, source, taken, variant)
            case ast.ClassDef(name="Runner", body=methods):
                call = next(m for m in methods if isinstance(m, ast.FunctionDef) and m.name == "call")
    if call is None:
        raise Unwritable("there is no call")
    helpers, libdevice = made_plain(list(kernels.values()))
    body = _Body(inputs, kernels, device, variant)
    for statement in call.body:
        body.statement(statement)
    if body.waiting:
        raise Unwritable("a convolution whose sizes are not said")
    functions = [ast.unparse(one) for one in [*helpers, *(kernel.function for kernel in kernels.values())]]
    functions += body.convolutions.values()
    return Rewritten(
        functions, _used(body.lines, body.results), body.results, sorted(set(body.extern)), libdevice
    )


def _blocks_of(count: str, block: int) -> str:
    if count.isdigit():
        return str(-(-int(count) // block))
    return f"triton.cdiv({count}, {block})" if block > 1 else count


def _broken(start: str, arguments: list[str]) -> str:
    """Write a call over several lines, with as many arguments a line as fit."""
    lines, line = [start], ""
    for place, argument in enumerate(arguments):
        given = argument if place == len(arguments) - 1 else f"{argument},"
        if line and len(line) + len(given) + 1 > _WIDTH:
            lines.append(f"    {line}")
            line = ""
        line += f"{' ' if line else ''}{given}"
    return "\n".join([*lines, f"    {line}", ")"])


def _used(lines: list[str], results: list[str]) -> list[str]:
    """Drop assignments to plain names that nothing reads."""
    kept: list[str] = []
    read = {
        node.id for text in results for node in ast.walk(parse_module(text)) if isinstance(node, ast.Name)
    }
    for line in reversed(lines):
        (statement,) = parse_module(line).body
        assigned = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(assigned, ast.Name) and assigned.id not in read:
            continue
        kept.append(line)
        read |= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return kept[::-1]


def _contiguous(size: ast.expr, stride: ast.expr) -> bool:
    """Whether the strides are those of a contiguous tensor for any sizes, tested on random ones."""
    for sizes, strides in _tried(size, stride):
        expected = 1
        for length, step in zip(reversed(sizes), reversed(strides), strict=True):
            if length != 1 and step != expected:
                return False
            expected *= length
    return True


def _tried(*expressions: ast.expr) -> Iterator[list[Any]]:
    """Yield the values of the expressions for random values of their names."""
    codes = [compile(ast.Expression(ast.fix_missing_locations(one)), "sizes", "eval") for one in expressions]
    names = {node.id for one in expressions for node in ast.walk(one) if isinstance(node, ast.Name)}
    dice = random.Random(0)
    for _ in range(_TRIES):
        yield _values(codes, sorted(names - {"max", "min"}), dice)


def _values(codes: list[Any], names: list[str], dice: random.Random) -> list[Any]:
    for _ in range(_MOST_TRIES):
        values: dict[str, Any] = {name: dice.randrange(2, 2 ** dice.randrange(2, 12)) for name in names}
        space = {"__builtins__": {"max": max, "min": min}} | values
        with contextlib.suppress(ZeroDivisionError):  # inconsistent sizes
            return [eval(code, space) for code in codes]
    raise Unwritable("sizes that no numbers fit")
