"""Convolutions without a Triton template in Inductor: transposed, grouped, dilated, or over one axis.

During capture they become a custom operation, which Inductor calls as it is. In Inductor's output the call is
replaced by a launch of a kernel written here, for one, two or three axes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from kernelmill.generate.inductor.variants import Variant, warps

CALLED = "torch.ops.kernelmill.convolution.default"
_BLOCKS = ("BLOCK_ROWS", "BLOCK_COLUMNS", "BLOCK_CHANNELS")


torch.library.define(
    "kernelmill::convolution",
    "(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
    "SymInt[] output_padding, SymInt groups, SymInt[] window, bool single) -> Tensor",
)
"""Never executed, only compiled. `window` and `single` carry what the generated kernel needs to know."""


@torch.library.register_fake("kernelmill::convolution")  # type: ignore[untyped-decorator]
def _shape(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    window: list[int],
    single: bool,
) -> torch.Tensor:
    sizes = [x.shape[0], weight.shape[1] * groups if transposed else weight.shape[0]]
    for axis, (step, pad, gap, more) in enumerate(
        zip(stride, padding, dilation, output_padding, strict=True), start=2
    ):
        reach = gap * (weight.shape[axis] - 1) + 1
        if transposed:
            sizes.append((x.shape[axis] - 1) * step - 2 * pad + reach + more)
        else:
            sizes.append((x.shape[axis] + 2 * pad - reach) // step + 1)
    return x.new_empty(sizes)


def as_ours(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: Any,
) -> Any:
    """Decompose `aten.convolution`; `NotImplemented` where Inductor has a template."""
    rank = x.dim() - 2
    has_template = (
        rank > 1 and not transposed and type(groups) is int and groups == 1 and set(dilation) == {1}
    )
    if has_template or rank not in (1, 2, 3):
        return NotImplemented
    lists = [
        list(one) * (rank if len(one) == 1 else 1) for one in (stride, padding, dilation, output_padding)
    ]
    steps, pads, gaps, more = lists
    window, single = list(weight.shape[2:]), statically_known_true(weight.shape[1] == 1)
    return torch.ops.kernelmill.convolution.default(
        x.contiguous(), weight.contiguous(), bias, steps, pads, gaps, transposed, more, groups, window, single
    )


def decompositions() -> dict[Any, Any]:
    """Return the decompositions for convolutions that are called as functions."""
    aten = torch.ops.aten

    def plain(
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = (1,),
        padding: Any = (0,),
        gap: Any = (1,),
        groups: Any = 1,
    ) -> Any:
        return as_ours(x, weight, bias, stride, padding, gap, False, [0], groups)

    def transposed(
        x: Any, weight: Any, bias: Any = None, stride: Any = (1,), padding: Any = (0,), more: Any = (0,),
        groups: Any = 1, gap: Any = (1,),
    ) -> Any:  # fmt: skip
        return as_ours(x, weight, bias, stride, padding, gap, True, more, groups)

    return {
        **dict.fromkeys((aten.conv1d.default, aten.conv2d.default, aten.conv3d.default), plain),
        **dict.fromkeys(
            (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input),
            transposed,
        ),
        aten.convolution.default: as_ours,
    }


@contextlib.contextmanager
def layers_in_groups() -> Iterator[None]:
    """Patch the layers whose `groups` is a symbol: torch's own function would specialise it to a constant."""

    def with_symbol(original: Any) -> Any:
        def forward(self: _ConvNd, x: torch.Tensor, *rest: Any) -> torch.Tensor:
            known = self.padding_mode == "zeros" and not isinstance(self.padding, str) and not rest
            if not known or type(self.groups) is int or x.dim() != self.weight.dim():
                return original(self, x, *rest)
            return as_ours(
                x, self.weight, self.bias, self.stride, self.padding, self.dilation,
                isinstance(self, _ConvTransposeNd), self.output_padding, self.groups,
            )  # fmt: skip

        return forward

    with contextlib.ExitStack() as stack:
        for kind in (f"Conv{mark}{rank}d" for mark in ("", "Transpose") for rank in (1, 2, 3)):
            layer = getattr(torch.nn, kind)
            stack.enter_context(mock.patch.object(layer, "forward", with_symbol(layer.forward)))
        yield


@dataclass(frozen=True)
class Call:
    """A call of the operation in Inductor's output.

    Fields other than `transposed` and `single` are expressions.
    """

    x: str
    weight: str
    bias: str | None
    stride: list[str]
    padding: list[str]
    dilation: list[str]
    transposed: bool
    groups: str
    window: list[str]
    single: bool
    """Whether a group has one input channel (one output channel if transposed)."""

    @property
    def rank(self) -> int:
        return len(self.stride)

    @property
    def depthwise(self) -> bool:
        return self.single and not self.transposed and self.groups != "1"

    @property
    def name(self) -> str:
        grouped = "grouped_conv" if self.groups != "1" else "conv"
        kind = "conv_transpose" if self.transposed else "depthwise_conv" if self.depthwise else grouped
        return f"{kind}{self.rank}d{'_bias' if self.bias else ''}_kernel"


def kernel(call: Call) -> str:
    """Return the source of the kernel for this call."""
    return _depthwise(call) if call.depthwise else _dense(call)


def launch(call: Call, out: str, variant: Variant) -> tuple[str, list[str]]:
    """Return the grid and the arguments. `x`, `weight`, `bias` and `out` must be names or attributes."""
    axes = range(2, 2 + call.rank)
    tensors = [call.x, call.weight, *([call.bias] if call.bias else []), out]
    sizes = [f"{call.x}.shape[{axis}]" for axis in axes] + [f"{out}.shape[{axis}]" for axis in axes]
    channels = [f"{call.x}.shape[1]", f"{out}.shape[1]"]
    constants = [
        f"{name}_{letter.upper()}={value}"
        for name, values in (
            ("WINDOW", call.window),
            ("STRIDE", call.stride),
            ("PADDING", call.padding),
            ("DILATION", call.dilation),
        )
        for letter, value in zip(_letters(call), values, strict=True)
    ]
    if call.depthwise:
        spots = " * ".join(f"{out}.shape[{axis}]" for axis in axes)
        grid = f"({out}.shape[0] * {out}.shape[1], triton.cdiv({spots}, {variant.elements}))"
        return grid, [*tensors, *channels, *sizes, *constants, f"BLOCK={variant.elements}"]
    rows, columns_at_once, _ = variant.tile
    steps = call.stride if call.transposed else ["1"] * call.rank
    spots = " * ".join(
        f"{out}.shape[{axis}]" if step == "1" else f"triton.cdiv({out}.shape[{axis}], {step})"
        for axis, step in zip(axes, steps, strict=True)
    )
    planes = " * ".join([step for step in [*steps, call.groups] if step != "1"] or ["1"])
    columns = f"{out}.shape[1]" if call.groups == "1" else f"{out}.shape[1] // {call.groups}"
    grid = (
        f"(triton.cdiv({out}.shape[0] * {spots}, {rows}), "
        f"triton.cdiv({columns}, {columns_at_once}), {planes})"
    )
    blocks = [f"{name}={size}" for name, size in zip(_BLOCKS, variant.tile, strict=True)]
    blocks.append(f"num_warps={warps(rows * columns_at_once // 4)}")
    return grid, [*tensors, f"{out}.shape[0]", *channels, call.groups, *sizes, *constants, *blocks]


def _letters(call: Call) -> str:
    return "dhw"[-call.rank :]


def _signature(call: Call, first: str, last: str) -> str:
    letters = _letters(call)
    tensors = ["x_ptr", "w_ptr", *(["bias_ptr"] if call.bias else []), "out_ptr"]
    sizes = [f"in_{a}" for a in letters] + [f"out_{a}" for a in letters]
    constants = [
        f"{name}_{a.upper()}: tl.constexpr"
        for name in ("WINDOW", "STRIDE", "PADDING", "DILATION")
        for a in letters
    ]
    ends = [f"{name}: tl.constexpr" for name in last.split()]
    lines = [tensors, first.split(), sizes, *(constants[i : i + len(letters)] for i in range(0, len(constants), len(letters))), ends]  # fmt: skip
    return ",\n    ".join(", ".join(line) for line in lines)


def _offset(parts: list[tuple[str, str]]) -> str:
    """Build a row-major offset from (index, size) pairs: `((a) * B + b) * C + c`."""
    text = parts[0][0]
    for index, size in parts[1:]:
        text = f"({text}) * {size} + {index}" if " " in text else f"{text} * {size} + {index}"
    return text


def _spots(letters: str, index: str, size: str) -> list[tuple[str, str]]:
    """Split a flat index into one index an axis; the last axis varies fastest."""
    found, below = [], ""
    for place, letter in enumerate(reversed(letters)):
        text = index if not below else f"{index} // ({below})" if "*" in below else f"{index} // {below}"
        if place < len(letters) - 1 or size:
            text += f" % {size}_{letter}" if size else ""
        found.append((letter, text))
        below = f"{below} * {size}_{letter}" if below else f"{size}_{letter}"
    return found[::-1]


def _taps(call: Call, innermost: list[str]) -> list[str]:
    """Write a loop over the window for each axis, with the input position and whether it is `inside`."""
    lines: list[str] = []
    indent, live = "", "live"
    for a in _letters(call):
        upper = a.upper()
        lines.append(f"{indent}for k{a} in range(WINDOW_{upper}):")
        indent += "    "
        if call.transposed:
            fits = f"(phase_{a} + PADDING_{upper} - k{a} * DILATION_{upper}) % STRIDE_{upper} == 0"
            lines.append(f"{indent}if {fits}:")
            indent += "    "
            lines += [
                f"{indent}reach_{a} = o{a} + PADDING_{upper} - k{a} * DILATION_{upper}",
                f"{indent}at_{a} = reach_{a} // STRIDE_{upper}",
                f"{indent}inside_{a} = {live} & (reach_{a} >= 0) & (at_{a} < in_{a})",
            ]
        else:
            lines += [
                f"{indent}at_{a} = o{a} * STRIDE_{upper} - PADDING_{upper} + k{a} * DILATION_{upper}",
                f"{indent}inside_{a} = {live} & (at_{a} >= 0) & (at_{a} < in_{a})",
            ]
        live = f"inside_{a}"
    return lines + [f"{indent}{line}" for line in innermost]


def _place(letters: str, mark: str, size: str) -> str:
    """Return the row-major position in a plane."""
    return _offset([(f"{mark}{letters[0]}", ""), *((f"{mark}{a}", f"{size}_{a}") for a in letters[1:])])


def _window(letters: str) -> str:
    return _offset([(f"k{letters[0]}", ""), *((f"k{a}", f"WINDOW_{a.upper()}") for a in letters[1:])])


def _product(name: str, letters: str) -> str:
    return " * ".join(f"{name}_{a.upper() if name.isupper() else a}" for a in letters)


def _function(call: Call, sizes: str, blocks: str, lines: list[str]) -> str:
    body = "\n".join(f"    {line}" for line in lines)
    return f"@triton.jit\ndef {call.name}(\n    {_signature(call, sizes, blocks)}\n):\n{body}"


def _depthwise(call: Call) -> str:
    letters = _letters(call)
    last = letters[-1]
    lines = [
        "plane = tl.program_id(0)  # one channel of one image",
        "oc = plane % out_c",
        "source = plane // out_c * in_c + oc // (out_c // in_c)",
        f"x_plane = x_ptr + source.to(tl.int64) * ({_product('in', letters)})",
        f"w_plane = w_ptr + oc * ({_product('WINDOW', letters)})",
        f"out_plane = out_ptr + plane.to(tl.int64) * ({_product('out', letters)})",
        "spot = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"live = spot < {_product('out', letters)}",
        *(f"o{a} = {text}" for a, text in _spots(letters, "spot", "out")),
        "acc = tl.zeros((BLOCK,), tl.float32)",
        *_taps(
            call,
            [
                f"x = tl.load(x_plane + {_place(letters, 'at_', 'in')}, mask=inside_{last}, other=0.0).to(tl.float32)",
                f"acc += x * tl.load(w_plane + {_window(letters)}).to(tl.float32)",
            ],
        ),
        *(["acc += tl.load(bias_ptr + oc).to(tl.float32)"] if call.bias else []),
        "tl.store(out_plane + spot, acc.to(out_ptr.dtype.element_ty), mask=live)",
    ]
    return _function(call, "in_c out_c", "BLOCK", lines)


def _dense(call: Call) -> str:
    """Write a matrix product.

    Rows are output positions, columns are output channels, and input channels are summed.
    """
    letters = _letters(call)
    if call.transposed:
        where = ["group = tl.program_id(2) % groups"]
        where.append("phase = tl.program_id(2) // groups  # outputs of one phase have the same taps")
        rest = "phase"
        for a in reversed(letters):
            where.append(f"phase_{a} = {rest} % STRIDE_{a.upper()}")
            rest = f"{rest} // STRIDE_{a.upper()}"
        where += [f"spots_{a} = tl.cdiv(out_{a}, STRIDE_{a.upper()})" for a in letters]
        spots = _spots(letters, "row", "spots")
        outputs = [f"o{a} = {text} * STRIDE_{a.upper()} + phase_{a}" for a, text in spots]
        rows = _product("spots", letters)
        weight = "(group * per_in + ci[:, None]) * per_out + column[None, :]"
    else:
        where = ["group = tl.program_id(2)"]
        outputs = [f"o{a} = {text}" for a, text in _spots(letters, "row", "out")]
        rows = _product("out", letters)
        weight = "(group * per_out + column[None, :]) * per_in + ci[:, None]"
    area = _product("in", letters)
    channels = [
        "ci = start + tl.arange(0, BLOCK_CHANNELS)",
        f"x_from = x_ptr + image[:, None] + ci[None, :] * ({area})",
        f"w_from = w_ptr + ({weight}) * ({_product('WINDOW', letters)})",
        "w_mask = (ci < per_in)[:, None] & (column < per_out)[None, :]",
        *_taps(
            call,
            [
                f"x_at = x_from + ({_place(letters, 'at_', 'in')})[:, None]",
                f"x = tl.load(x_at, mask=inside_{letters[-1]}[:, None] & (ci < per_in)[None, :], other=0.0)",
                f"w = tl.load(w_from + {_window(letters)}, mask=w_mask, other=0.0)",
                'acc = tl.dot(x, w, acc, input_precision="ieee")',
            ],
        ),
    ]
    bias = [
        "bias = tl.load(bias_ptr + group * per_out + column, mask=column < per_out, other=0.0)",
        "acc += bias[None, :].to(tl.float32)",
    ]
    lines = [
        *where,
        "per_in = in_c // groups",
        "per_out = out_c // groups",
        "row = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)",
        *outputs,
        f"n = row // ({rows})",
        f"live = (n < batch) & {' & '.join(f'(o{a} < out_{a})' for a in letters)}",
        f"image = (n * in_c + group * per_in).to(tl.int64) * ({area})",
        "column = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)",
        "acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)",
        "for start in range(0, per_in, BLOCK_CHANNELS):",
        *(f"    {line}" for line in channels),
        *(bias if call.bias else []),
        f"target = (n * out_c + group * per_out).to(tl.int64) * ({_product('out', letters)}) + {_place(letters, 'o', 'out')}",
        f"out_at = out_ptr + target[:, None] + column[None, :] * ({_product('out', letters)})",
        "tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=live[:, None] & (column < per_out)[None, :])",
    ]
    return _function(call, "batch in_c out_c groups", " ".join(_BLOCKS), lines)
