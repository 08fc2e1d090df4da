"""Name files, and the classes that parents import from them: `conv2d_64x128_k3_fp32`."""

from __future__ import annotations

import re
from typing import Any

from kernelmill.decompose.cut.kinds import fusion_role
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.write.emit import Made
from kernelmill.decompose.write.literals import numbered

_DTYPES = {
    "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int64": "i64", "int32": "i32", "int16": "i16",
    "int8": "i8", "uint8": "u8", "bool": "bool", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def file_name(title: str, part: Part, made: Made) -> str:
    """The title, what distinguishes this piece of work from others with that title, and its dtype."""
    dtypes = [value.dtype for value in (*part.inputs, *part.outputs)]
    dtype = next((one for one in dtypes if "float" in one), dtypes[0] if dtypes else "float32")
    return plain("_".join(filter(None, [title, _sizes(part, made), _DTYPES.get(dtype, dtype)])))


def plain(name: str) -> str:
    """Turn a name into a valid Python module name."""
    base = re.sub(r"\W+", "_", name)[:120].strip("_")
    return f"p{base}" if base[:1].isdigit() else base


def class_name(name: str, taken: set[str]) -> str:
    base = "".join(piece[:1].upper() + piece[1:] for piece in name.split("_"))
    return next(name for name in numbered(base) if name not in taken)


def same_for_all(part: Part) -> bool:
    """Whether it treats every element alike, so that its shape does not matter."""
    return all(fusion_role(op) in ("pointwise", "activation") for op in part.ops) and len(part.inputs) == 1


def _sizes(part: Part, made: Made) -> str:
    """What distinguishes this piece of work from others of its name: sizes of weights, else of inputs."""
    if part.level == "layer":
        return "x".join(map(str, part.inputs[0].shape or ())) if part.inputs else ""
    layer = next((op.module for op in part.ops if op.module and op.module.weights), None)
    if layer is None:
        layer = next((op.module for op in part.ops if op.module and fusion_role(op) != "layout"), None)
    if layer is not None and layer.required:
        names = {"kernel_size": "k"}
        found = ["x".join(_flat(value) for name, value in layer.required.items() if name not in names)]
        found += [f"k{_flat(layer.required[name])}" for name in names if name in layer.required]
        short = {"stride": "s", "padding": "p", "dilation": "d", "groups": "g", "num_layers": "l"}
        found += [f"{short[name]}{_flat(value)}" for name, value in layer.options.items() if name in short]
        return "_".join(filter(None, found))
    shapes = [value for name, value in made.arguments.items() if name.endswith("_shape")]
    if shapes:
        return _flat(shapes[0][::-1] if part.title == "linear" else shapes[0])
    if part.level == "kernel" and same_for_all(part):
        return ""
    tensors = [value for value in [*part.inputs, *part.outputs] if value.shape is not None]
    return "x".join(map(str, tensors[0].shape or ())) if tensors else ""


def _flat(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
