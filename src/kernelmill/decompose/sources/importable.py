"""Write an importable class as a source.

    --module package.module:Class --init '(64, heads=8)' --inputs 'x=float32[batch,seq,64]'

The source is a small file that imports the class, subclasses it as `Model` and draws its inputs. Sizes with a
name but no number get a default, and so does the range of indices. The choices are returned, to be recorded.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.base.python_text import parse_expression
from kernelmill.decompose.sources.local_imports import module_file, with_local_modules
from kernelmill.decompose.sources.problem_files import ModelFile
from kernelmill.errors import SourceError

SIZES = {
    **dict.fromkeys(("b", "n", "batch", "batch_size", "bs"), 2),
    **dict.fromkeys(("s", "t", "l", "seq", "seq_len", "sequence", "sequence_length", "length", "tokens", "time"), 32),
    **dict.fromkeys(("h", "w", "height", "width", "image", "image_size"), 32),
    **dict.fromkeys(("c", "channels"), 3),
}  # fmt: skip
OTHER_SIZE = 8
INDICES = 10
"""Exclusive upper bound of indices, unless one is given."""
DTYPES = {
    **dict.fromkeys(("float64", "fp64", "f64", "double"), "float64"),
    **dict.fromkeys(("float32", "fp32", "f32", "float"), "float32"),
    **dict.fromkeys(("float16", "fp16", "f16", "half"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("int64", "i64", "long", "int"), "int64"),
    **dict.fromkeys(("int32", "i32"), "int32"),
    **dict.fromkeys(("int16", "i16"), "int16"),
    **dict.fromkeys(("int8", "i8"), "int8"),
    **dict.fromkeys(("uint8", "u8"), "uint8"),
    "bool": "bool",
    "complex64": "complex64",
}
_TENSOR = re.compile(r"(?P<dtype>\w+)\s*\[(?P<sizes>[^\]]*)\]\s*(?:<\s*(?P<below>\d+))?")
_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<what>.+)", re.DOTALL)
_CLASS = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


class Given(NamedTuple):
    """One input; `drawn` is the expression that creates it."""

    name: str | None
    drawn: str
    dtype: str | None


def module_source(named: str, init: str, inputs: str, folder: Path) -> ModelFile:
    """The class as a model.

    Modules are searched in `folder` before Python's packages. Raises `SourceError`.
    """
    found = _CLASS.fullmatch(named)
    if found is None:
        raise SourceError(f"--module {named}: expected package.module:Class")
    module, name = found["module"], found["name"]
    if module_file(module, [folder]) is None and not _installed(module):
        raise SourceError(
            f"--module {named}: there is no module {module} in {folder}, nor among the packages"
        )
    positional, keywords = constructor(init)
    assumptions: list[str] = []
    given = parsed_inputs(inputs, assumptions)
    floats = {one.dtype for one in given if one.dtype in ("float64", "float16", "bfloat16", "float32")}
    cast = floats.pop() if len(floats) == 1 else "float32"
    names = [one.name or f"x{number}" for number, one in enumerate(given)]
    body = [f"from {module} import {name}", "", "", f"class Model({name}):"]
    if cast != "float32":
        assumptions.append(f"weights are {cast}, as the inputs are")
        body += [
            "    def __init__(self, *args, **kwargs):",
            "        super().__init__(*args, **kwargs)",
            f"        self.to(torch.{cast})",
            "",
        ]
    passed = ", ".join(
        f"{one.name}={one.name}" if one.name else said for one, said in zip(given, names, strict=True)
    )
    body += [
        f"    def forward({', '.join(['self', *names])}):", f"        return super().forward({passed})", "", "",
        "def get_inputs():", f"    return [{', '.join(one.drawn for one in given)}]", "", "",
        "def get_init_inputs():", f"    return [[{positional}], {{{keywords}}}]", "",
    ]  # fmt: skip
    text = "\n".join(["import torch", "", *body])
    code = with_local_modules(text, folder, f"{name} of {module}")
    if code == text:
        code = f'"""{name} of {module}."""\n\n{text}'
    return ModelFile(Path(named), None, code, tuple(assumptions))


def _installed(module: str) -> bool:
    """Check without importing it: a package's `__init__` is untrusted code too."""
    try:
        return importlib.util.find_spec(module.partition(".")[0]) is not None
    except (ImportError, ValueError):
        return False


def constructor(text: str) -> tuple[str, str]:
    """Parse `(64, heads=8)` into the contents of a list and of a dict. Raises `SourceError`."""
    inner = text.strip()
    try:
        call = parse_expression(
            f"f{inner}" if inner.startswith("(") and inner.endswith(")") else f"f({inner})"
        )
        if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
            raise ValueError
        positional = ", ".join(_literal(value) for value in call.args)
        keywords = ", ".join(f"{word.arg!r}: {_literal(word.value)}" for word in call.keywords)
    except (SyntaxError, ValueError):
        raise SourceError(f"--init {text}: expected Python literals, such as (64, heads=8)") from None
    return positional, keywords


def _literal(node: ast.expr) -> str:
    """Numbers, strings, tuples, lists and dicts of them, and dtypes such as `torch.bfloat16`."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in DTYPES.values():
            return f"torch.{name}"
    return repr(ast.literal_eval(node))


def parsed_inputs(text: str, assumptions: list[str]) -> list[Given]:
    """Parse `x=float32[batch,seq,64], ids=int64[batch,seq]<1000, causal=True`.

    Appends the choices made to `assumptions`. Raises `SourceError`.
    """
    sizes: dict[str, int] = {}
    given = []
    for piece in _pieces(text):
        named = _NAMED.fullmatch(piece)
        name, what = (named["name"], named["what"].strip()) if named else (None, piece)
        tensor = _TENSOR.fullmatch(what)
        if tensor is None:
            try:
                given.append(Given(name, repr(ast.literal_eval(what)), None))
            except (SyntaxError, ValueError):
                raise SourceError(
                    f"--inputs {piece}: expected type[size,size], such as float32[batch,64]"
                ) from None
            continue
        dtype = DTYPES.get(tensor["dtype"])
        if dtype is None:
            raise SourceError(
                f"--inputs {piece}: unknown type {tensor['dtype']}; expected one of {', '.join(DTYPES)}"
            )
        shape = [_size(word.strip(), piece, sizes) for word in tensor["sizes"].split(",") if word.strip()]
        below = int(tensor["below"]) if tensor["below"] else None
        if below is None and dtype.lstrip("u").startswith("int"):
            below = INDICES
            assumptions.append(f"{name or 'input'}: from 0 to {below - 1}, no range was given")
        given.append(Given(name, _drawn(dtype, shape, below), dtype))
    assumptions += [f"{name} = {size}" for name, size in sizes.items()]
    return given


def _size(word: str, piece: str, sizes: dict[str, int]) -> int:
    if word.isascii() and word.isdigit():
        return int(word)
    if not word.isidentifier():
        raise SourceError(f"--inputs {piece}: invalid size {word!r}; expected a number or a name")
    return sizes.setdefault(word, SIZES.get(word.lower(), OTHER_SIZE))


def _drawn(dtype: str, shape: list[int], below: int | None) -> str:
    sizes = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
    if dtype == "bool":
        return f"torch.rand{sizes} < 0.9" if shape else "torch.tensor(True)"
    if "int" in dtype:
        return f"torch.randint(0, {below}, {sizes}{'' if dtype == 'int64' else f', dtype=torch.{dtype}'})"
    return f"torch.randn({sizes}{'' if dtype == 'float32' else f', dtype=torch.{dtype}'})"


def _pieces(text: str) -> list[str]:
    """Split at commas outside brackets."""
    pieces, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += letter
    return [piece.strip() for piece in pieces if piece.strip()]


def keyword(text: str) -> tuple[str, Any]:
    """Parse `num_hidden_layers=2` of `--set`; a value that is not a Python literal is a string.

    Raises `SourceError`.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise SourceError(f"--set {text}: expected key=value")
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (SyntaxError, ValueError):
        return name.strip(), value.strip()
