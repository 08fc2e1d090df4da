"""Inductor's kernels as plain Triton: without Inductor's decorators and without imports from torch.

Inductor helpers that a kernel calls are copied from the installed torch.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import re
from dataclasses import dataclass, field
from typing import Any

from torch._inductor.runtime import triton_helpers

from kernelmill.base.python_text import parse_expression, parse_module
from kernelmill.generate.inductor.simplify import name_repeats, simplify
from kernelmill.generate.inductor.variants import Variant, warps

_SAME_IN_TRITON = frozenset(
    (
        "abs",
        "ceil",
        "cos",
        "erf",
        "exp",
        "exp2",
        "floor",
        "fma",
        "log",
        "log2",
        "rsqrt",
        "sigmoid",
        "sin",
        "sqrt",
    )
)
"""Libdevice functions that Triton's language has under the same name."""
_CALLED = {"addmm": "linear", "bmm": "batched_matmul", "mm": "matmul", "native_layer_norm": "layer_norm",
           "native_group_norm": "group_norm", "convolution": "conv", "prepare_softmax_online": "softmax",
           "max_pool2d_with_indices": "max_pool2d"}  # fmt: skip
_MOVES = (
    "unsqueeze",
    "squeeze",
    "transpose",
    "permute",
    "expand",
    "clone",
    "select",
    "slice",
    "split",
    "view",
    "t",
    "unsafe",
    "to",
    "copy",
    "arange",
    "legit",
    "functional",
    "native",
)
"""Operations that only change views or layouts; they are left out of kernel names."""
_LONGEST_NAME = 48
_MANY, _SQUARE = 1 << 17, 1024


_OURS = """
@triton.jit
def max2(x, dim):
    return tl.max(x, dim)

@triton.jit
def min2(x, dim):
    return tl.min(x, dim)

@triton.jit
def max_with_index(value, index, dim):
    best = tl.max(value, dim, keep_dims=True)
    return tl.max(value, dim), tl.min(tl.where(value == best, index, 2147483647), dim)

@triton.jit
def min_with_index(value, index, dim):
    best = tl.min(value, dim, keep_dims=True)
    return tl.min(value, dim), tl.min(tl.where(value == best, index, 2147483647), dim)

@triton.jit
def welford(mean, m2, weight, dim):
    weights = tl.sum(weight, dim, keep_dims=True)
    centre = tl.sum(mean * weight, dim, keep_dims=True) / tl.maximum(weights, 1.0)
    spread = tl.sum(m2 + weight * (mean - centre) * (mean - centre), dim)
    total = tl.sum(weight, dim)
    return tl.sum(mean * weight, dim) / tl.maximum(total, 1.0), spread, total
"""
"""Triton reductions in place of Inductor helpers with a reduction function of their own.

The interpreter would call that function for every element. They differ from Inductor's for NaN inputs.
"""


class Unwritable(Exception):
    """The problem, or Inductor's source for it, contains something that is not supported here."""


@dataclass
class Kernel:
    name: str
    function: ast.FunctionDef
    helpers: list[ast.FunctionDef]
    kind: str
    """pointwise, reduction, persistent_reduction or template."""
    grid: str
    arguments: list[str]
    """The arguments that a launch passes, in order."""
    blocks: dict[str, int] = field(default_factory=dict)
    """Its other arguments: block sizes."""
    warps: int = 4
    stages: int | None = None


def read_kernel(name: str, text: str, taken: set[str], variant: Variant) -> Kernel:
    """Parse one kernel. `taken` holds the names in use; the kernel's name is added."""
    functions = [node for node in parse_module(text).body if isinstance(node, ast.FunctionDef)]
    function = functions[-1]
    decorator = function.decorator_list[0]
    if not isinstance(decorator, ast.Call) or not isinstance(decorator.func, ast.Attribute):
        raise Unwritable(f"{name} is decorated in an unknown way")
    options = {keyword.arg: keyword.value for keyword in decorator.keywords}
    signature = _entry(options["triton_meta"], "signature")
    meta = options["inductor_meta"]
    kernel = Kernel(
        _named(name, taken),
        function,
        functions[:-1],
        decorator.func.attr,
        _entry(meta, "grid_type"),
        [argument for argument in signature if not argument.endswith("BLOCK")],
    )
    blocks = [argument for argument in signature if argument.endswith("BLOCK")]
    if kernel.kind == "template":
        kernel.warps, kernel.stages = (int(ast.literal_eval(options[o])) for o in ("num_warps", "num_stages"))
    else:
        hints = ast.literal_eval(options["size_hints"])
        inner = "INNER" in ast.unparse(options.get("reduction_hint", ast.Constant("")))
        sizes = _blocks(kernel.kind, hints, inner, variant)
        kernel.blocks = {block: size for block, size in sizes.items() if block in blocks}
        rows = hints.get("r0_", 1) if kernel.kind == "persistent_reduction" else 1
        kernel.warps = warps(rows * math.prod(kernel.blocks.values()))
        if missing := [block for block in blocks if block not in kernel.blocks]:
            raise Unwritable(f"{name} wants {missing}")
    function.name = kernel.name
    for one in functions:
        one.decorator_list = [parse_expression("triton.jit")]
    return kernel


def _entry(dictionary: ast.expr, key: str) -> Any:
    """Return one entry of a dict display, whose other entries need not be literals."""
    if isinstance(dictionary, ast.Dict):
        for one, value in zip(dictionary.keys, dictionary.values, strict=True):
            if isinstance(one, ast.Constant) and one.value == key:
                return ast.literal_eval(value)
    raise Unwritable(f"no {key}")


def _blocks(kind: str, hints: dict[str, int], inner: bool, variant: Variant) -> dict[str, int]:
    """Choose block sizes that perform well for these sizes; any choice is correct."""
    if kind == "pointwise":
        if len(hints) == 1:
            return {"XBLOCK": variant.elements if hints["x"] >= _MANY else min(256, variant.elements)}
        side = 64 if variant.elements > _SQUARE else 32
        return {"XBLOCK": side, "YBLOCK": 32, "ZBLOCK": 1}
    last = hints.get("r0_", 1)
    if kind == "persistent_reduction":
        return {"XBLOCK": max(1, min(8, variant.across // last)), "YBLOCK": 1}
    if inner:
        across = min(variant.across, last)
        blocks = {"XBLOCK": max(1, min(8, variant.across // last)), "R0_BLOCK": across}
    else:
        blocks = {"XBLOCK": variant.wide, "R0_BLOCK": min(32, last)}
    return blocks | {"YBLOCK": 1, "R1_BLOCK": min(16, hints.get("r1_", 1))}


def _named(name: str, taken: set[str]) -> str:
    """Choose a readable name: `triton_tem_fused_addmm_gelu_t_0` becomes `linear_gelu_kernel`."""
    words = re.sub(r"^triton_(poi|red|per|tem|for)_fused_|_\d+$", "", name).strip("_")
    known = sorted([*_CALLED, *_MOVES], key=len, reverse=True)
    parts = re.findall("|".join([rf"(?<![^_])(?:{'|'.join(known)})(?![^_])", "[^_]+"]), words)
    parts = [_CALLED.get(part, part) for part in parts if part not in _MOVES and not part.isdigit()]
    parts = list(dict.fromkeys(parts))
    short = "fused"
    for part in parts:
        if len(f"{short}_{part}") > _LONGEST_NAME:
            break
        short = part if short == "fused" else f"{short}_{part}"
    wanted, number = f"{short}_kernel", 2
    while wanted in taken:
        wanted, number = f"{short}_kernel_{number}", number + 1
    taken.add(wanted)
    return wanted


class _Plain(ast.NodeTransformer):
    """Calls Inductor's helpers by bare name, and Triton's functions instead of libdevice's if both exist."""

    def __init__(self) -> None:
        self.helpers: dict[str, None] = {}
        self.libdevice = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name):
            return node
        owner, name = node.value.id, node.attr
        if owner == "triton_helpers":
            self.helpers[name] = None
            return ast.copy_location(ast.Name(helper_name(name), ast.Load()), node)
        if owner in ("tl_math", "math") or (owner == "libdevice" and name in _SAME_IN_TRITON):
            node.value = ast.Name("tl", ast.Load())
        elif owner == "libdevice":
            self.libdevice = True
        return node


def helper_name(name: str) -> str:
    return f"{name}_" if hasattr(builtins, name) else name


def made_plain(kernels: list[Kernel]) -> tuple[list[ast.FunctionDef], bool]:
    """Rewrite the kernels in place.

    Returns the helpers they need, callees first, and whether libdevice is used.
    """
    plain = _Plain()
    own: dict[str, str] = {}
    found: list[ast.FunctionDef] = []
    for kernel in kernels:
        for helper in kernel.helpers:
            plain.visit(helper)
            text = ast.unparse(helper)
            if own.setdefault(helper.name, text) != text:
                raise Unwritable(f"two helpers are called {helper.name}")
            if text not in [ast.unparse(one) for one in found]:
                found.append(helper)
        plain.visit(kernel.function)
        simplify(kernel.function)
        name_repeats(kernel.function)
    return [*_library(plain), *found], plain.libdevice


def _library(plain: _Plain) -> list[ast.FunctionDef]:
    known = {
        node.name: node
        for text in (inspect.getsource(triton_helpers), _OURS)
        for node in parse_module(text).body
        if isinstance(node, ast.FunctionDef)
    }
    ordered: dict[str, ast.FunctionDef] = {}

    def take(name: str) -> None:
        if name in ordered:
            return
        if name not in known:
            raise Unwritable(f"the helper {name}")
        function = known[name]
        if ast.unparse(function.decorator_list[0]) != "triton.jit" if function.decorator_list else True:
            raise Unwritable(f"the helper {name} is no function of Triton's")
        used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)} - {name}
        for other in sorted(used & set(known)):
            take(other)
        plain.visit(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in known:
                node.id = helper_name(node.id)
        function.name = helper_name(name)
        ordered[name] = function

    for name in list(plain.helpers):
        take(name)
    return list(ordered.values())
