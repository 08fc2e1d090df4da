"""A candidate with many kernels, those that the compiler takes and those that it refuses, and how they are launched."""

from __future__ import annotations

import functools
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

CANDIDATE = """\
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def softmax(x, o, stride, n, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * stride + at, mask=at < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(o + row * stride + at, power / tl.sum(power, axis=0), mask=at < n)


@triton.jit
def layer_norm(x, w, o, n, eps, B: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    centred = tl.where(at < n, value - tl.sum(value, 0) / n, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + eps)
    tl.store(o + row * n + at, centred * scale * tl.load(w + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"BM": 64, "BN": 64, "BK": 32})], key=["K"])
@triton.heuristics({"EVEN": lambda args: args["K"] % args["BK"] == 0})
@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        right = tl.load(b + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + rm[:, None] * N + rn[None, :], total.to(c.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def atomic_sum(x, o, B: tl.constexpr):
    tl.atomic_add(o, tl.sum(tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 0))


@triton.jit
def largest(x, o, B: tl.constexpr):
    tl.store(o, tl.argmax(tl.load(x + tl.arange(0, B)), axis=0))


@triton.jit
def tanh(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(o + at, libdevice.tanh(tl.load(x + at)))


@triton.jit
def block_pointers(x, o, M, N, B: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    target = tl.make_block_ptr(o, (M, N), (N, 1), (tl.program_id(0) * B, 0), (B, B), (1, 0))
    tl.store(target, tl.load(source, boundary_check=(0, 1)) * 2, boundary_check=(0, 1))


@triton.jit
def descriptors(x, o, M, N, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[B, B])
    target.store([tl.program_id(0) * B, 0], source.load([tl.program_id(0) * B, 0]))


@triton.jit
def static_range(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for i in tl.static_range(4):
        total += tl.load(x + at + i * B)
    tl.store(o + at, total)


@triton.jit
def assembly(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    power = tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1)
    tl.store(o + at, power)


@triton.jit
def square(v):
    return v * v


@triton.jit
def constants(x, o, sizes, KIND: tl.constexpr, NAME: tl.constexpr, LEAST: tl.constexpr, F: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.static_assert(NAME == "relu")
    value = F(tl.load(x + at, mask=at < sizes[0], other=LEAST)).to(KIND)
    tl.store(o + at, value, mask=at < sizes[1])


def make(factor):
    @triton.jit
    def scaled(x, o, B: tl.constexpr):
        at = tl.arange(0, B)
        tl.store(o + at, tl.load(x + at) * factor)
    return scaled


double, triple = make(tl.constexpr(2)), make(tl.constexpr(3))


class ModelNew(torch.nn.Module):
    @triton.jit
    def inside(x, o, B: tl.constexpr):
        at = tl.arange(0, B)
        tl.store(o + at, tl.load(x + at))

    def forward(self, x):
        @triton.jit
        def later(x, o, B: tl.constexpr):
            at = tl.arange(0, B)
            tl.store(o + at, tl.load(x + at))

        return later


@triton.jit
def comprehension(x, o, B: tl.constexpr):
    some = [i for i in range(3)]
    tl.store(o + tl.arange(0, B), len(some))


@triton.jit
def any_size(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(o + at, tl.load(x + at))


@triton.jit
def dot(a, b, c, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def carried(x, o, B: tl.constexpr):
    at, total = tl.arange(0, B), 0
    for i in range(3):
        total += tl.load(x + at)
    tl.store(o + at, total)


@triton.jit
def helper(v):
    return v + undefined_name


@triton.jit
def calls_helper(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(o + at, helper(tl.load(x + at)))


@triton.jit
def bad_assembly(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(o + at, tl.inline_asm_elementwise("nonsense $0, $1;", "=f,f", [tl.load(x + at)], tl.float32, True, 1))


@triton.jit
def deadly_assembly(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(o + at, tl.inline_asm_elementwise("ex2.approx.f32 $0, $1;", "=f,f,f", [tl.load(x + at)], tl.float32, True, 1))


@triton.jit
def endless(x, o, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at)
    for i in tl.static_range(1000000000):
        value += 1
    tl.store(o + at, value)
"""


@functools.cache
def texts(source: str = CANDIDATE) -> dict[str, dict[str, Any]]:
    """The kernels of a candidate as its program has them. Executes the source, so it must be one of ours."""
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from kernelmill.evaluate import kernel_source
    from kernelmill.evaluate.kernel_source import CANDIDATE_MODULE
    from kernelmill.evaluate.trace.kernel_text import text_of

    kinds = (JITFunction, InterpretedFunction)  # whichever this process makes
    file = Path(tempfile.mkdtemp()) / "candidate.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(CANDIDATE_MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[CANDIDATE_MODULE] = module
    kernel_source._keys.clear()  # the names of a candidate's own process
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[CANDIDATE_MODULE]
    inner = vars(getattr(module, "ModelNew", object)).values()
    made = [getattr(one, "fn", one) if not isinstance(one, kinds) else one for one in vars(module).values()]
    while any(
        hasattr(one, "fn") and not isinstance(one, kinds) for one in made
    ):  # an autotuner of heuristics
        made = [one if isinstance(one, kinds) else getattr(one, "fn", one) for one in made]
    found: dict[str, dict[str, Any]] = {}
    for one in [*made, *inner]:
        if isinstance(one, kinds):
            text_of(one, found)
    return found


def launch(
    kernel: str, signature: str, constants: dict[str, Any] | None = None, **rest: Any
) -> dict[str, Any]:
    """A launch's record; the signature is written as `x:*fp32 n:i32`, and the constants are added to it."""
    constants = {"B": 64} if constants is None else constants
    kinds = dict(pair.split(":") for pair in signature.split())
    return {
        "kernel": kernel,
        "signature": kinds | dict.fromkeys(constants, "constexpr"),
        "constexprs": constants,
        "attrs": [],
    } | rest


_XO = "x:*fp32 o:*fp32"
_MM = "a:*{0} b:*{0} c:*{0} M:i32 N:i32 K:i32"
_DOT = "a:*{0} b:*{0} c:*fp32"


def tiles(bm: int, bn: int, bk: int) -> dict[str, Any]:
    return {"BM": bm, "BN": bn, "BK": bk, "EVEN": True}


GOOD = {
    "add": launch("add", "x:*fp32 y:*fp32 o:*fp32 n:i32", {"B": 1024}, attrs=["x", "y", "o", "n"]),
    "softmax": launch("softmax", f"{_XO} stride:i32 n:i32", {"B": 1024}, attrs={"x": 16, "o": 16}),
    "layer norm": launch("layer_norm", "x:*fp16 w:*fp16 o:*fp16 n:i32 eps:fp32", {"B": 2048}, num_warps=8),
    "matmul fp32": launch("matmul", _MM.format("fp32"), tiles(64, 64, 32)),
    "matmul fp16": launch("matmul", _MM.format("fp16"), tiles(64, 64, 32), num_stages=2),
    "matmul bf16": launch("matmul", _MM.format("bf16"), tiles(32, 64, 64)),
    "atomics": launch("atomic_sum", _XO),
    "argmax": launch("largest", "x:*fp32 o:*i32"),
    "libdevice": launch("tanh", _XO),
    "block pointers": launch("block_pointers", f"{_XO} M:i32 N:i32", {"B": 32}),
    "tensor descriptors": launch("descriptors", "x:*fp16 o:*fp16 M:i32 N:i32", attrs=["x", "o", "N"]),
    "static range": launch("static_range", _XO),
    "inline assembly": launch("assembly", _XO),
    "dot of 16": launch("dot", _DOT.format("fp32"), {"N": 16}),
    "constants of every kind": launch(
        "constants",
        "x:*fp32 o:*fp16",
        {
            "KIND": "tl.float16",
            "NAME": "relu",
            "LEAST": {"float": "-inf"},
            "F": {"function": "square"},
            "B": 64,
        },
    ),
    "made twice": launch("make.<locals>.scaled", _XO),
    "its twin": launch("make.<locals>.scaled_2", _XO),
    "in a class": launch("ModelNew.inside", _XO),
}
GOOD["constants of every kind"]["signature"]["sizes"] = ["i32", "constexpr"]
GOOD["constants of every kind"]["constexprs"]["sizes.1"] = 64

REFUSED = {
    "comprehension": (launch("comprehension", _XO), "COMPILE_ERROR", "comprehensions"),
    "arange of 3": (launch("any_size", _XO, {"B": 3}), "COMPILE_ERROR", "power of 2"),
    "dot of 8": (launch("dot", _DOT.format("fp16"), {"N": 8}), "COMPILE_ERROR", "K >= 16"),
    "loop-carried type": (launch("carried", _XO), "COMPILE_ERROR", "Loop-carried variable total"),
    "error in a helper": (launch("calls_helper", _XO), "COMPILE_ERROR", "undefined_name is not defined"),
    "assembly": (launch("bad_assembly", _XO), "COMPILE_ERROR", "Not a name of any known instruction"),
    "huge tensor": (launch("any_size", _XO, {"B": 1 << 21}), "COMPILE_ERROR", "exceeds triton maximum"),
    "three warps": (launch("any_size", _XO, num_warps=3), "COMPILE_ERROR", "num_warps must be a power of 2"),
    "unknown option": (launch("any_size", _XO, options={"waves": 2}), "COMPILE_ERROR", "waves was specified"),
    "shared memory": (
        launch("dot", _DOT.format("fp32"), {"N": 256}, num_warps=8),
        "OUT_OF_RESOURCES",
        "shared memory, Required: 524288, Hardware limit: 232448",
    ),
    "far too much shared memory": (
        launch(
            "matmul",
            _MM.format("fp32"),
            tiles(256, 256, 128),
            num_warps=8,
            num_stages=5,
            attrs=list("abcMNK"),
        ),
        "OUT_OF_RESOURCES",
        "Hardware limit: 232448",
    ),
    "threads": (launch("any_size", _XO, num_warps=64), "OUT_OF_RESOURCES", "threads, Required: 2048"),
    "not there": (launch("nowhere", _XO), "UNSUPPORTED", "the text of nowhere is not known"),
    "other arguments": (launch("add", _XO), "UNSUPPORTED", "defined with"),
    "unknown constant": (launch("any_size", _XO, {"B": {"repr": "<thing>"}}), "UNSUPPORTED", "<thing>"),
}
