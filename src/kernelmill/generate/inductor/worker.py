"""The teacher's worker for `kernelmill.sandbox`: one problem in, one `ModelNew` out.

It executes the problem's code.

The request is `{"code": source, "entry_point": class or null, "variant": number}`. The reply is `{"code",
"extern", "mode"}`, where `extern` names the operations that still call torch's library.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._inductor.exc import InductorError, LoweringException
from torch._subclasses.fake_tensor import FakeTensor
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument

from kernelmill.generate.inductor import fake_gpu
from kernelmill.generate.inductor.capture import Captured, capture
from kernelmill.generate.inductor.generate import generate
from kernelmill.generate.inductor.kernels import Unwritable
from kernelmill.generate.inductor.rewrite import rewrite
from kernelmill.generate.inductor.skeleton import assemble, forward_of
from kernelmill.generate.inductor.variants import variant

_MOST_NUMBERS = 64
_OURS = re.compile(r"(buf|constant|count|n|ps|s|u|view|arg)\d+|grid")
"""Names that the generated `forward` uses for its own variables."""
_WARM_UP = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 48)
    def forward(self, x):
        return torch.softmax(self.linear(x), -1)
def get_inputs():
    return [torch.randn(64, 32)]
def get_init_inputs():
    return []
"""


def prepare() -> None:
    """Warm up before forking children: the first compilation imports and traces what all of them need."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fake_gpu.install()
    handle({"code": _WARM_UP})
    torch._dynamo.reset()


_MISTAKES = (TypeError, AttributeError, NameError, LookupError, AssertionError, RecursionError)


class TeacherFault(Exception):
    """A bug of the teacher: the problem is fine, and the compiler has not rejected it."""


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Write one candidate.

    Raises `BadReference`, `Unwritable` or what torch raises if the problem cannot be written, else
    `TeacherFault`."""
    try:
        return _written(request)
    except Exception as raised:
        error = _unwrapped(raised)
        # The problem's own code has already run (`load_reference`). Torch rejects with its own errors or
        # RuntimeError.
        if not isinstance(error, _MISTAKES) or type(error).__module__.partition(".")[0] == "torch":
            raise
        raise TeacherFault(f"{type(error).__name__}: {error}") from raised


def _unwrapped(error: BaseException) -> BaseException:
    """Return the error behind one of Inductor's.

    Its compiler calls our patches and wraps whatever they raise.

    Other errors are not unwrapped: their cause was handled, or belongs to the problem.
    """
    while isinstance(error, InductorError | LoweringException):
        inner = getattr(error, "inner_exception", None) or error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return error


def _written(request: dict[str, Any]) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    for variable in (
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
    ):  # children cannot access the server's own directories
        os.environ[variable] = os.path.abspath(variable.lower())
    code, entry_point = request["code"], request.get("entry_point")
    captured, reference = capture(code, entry_point)
    name = reference.kind.__name__
    given = forward_of(code, name).args
    arguments = [arg.arg for arg in (*given.posonlyargs, *given.args)][1:]
    if given.vararg is not None:
        arguments += [f"{given.vararg.arg}[{place}]" for place in range(len(captured.sources))]
    inputs, lines, device = _inputs(captured, arguments)
    chosen = variant(request.get("variant", 0))
    new = rewrite(generate(captured, chosen), inputs, device, chosen)
    body = [
        *lines,
        *new.body,
        *_mutations(captured, inputs, new.results),
        f"return {_returned(captured, new.results)}",
    ]
    imports = ["import torch", "import triton", "import triton.language as tl"]
    if new.uses_libdevice:
        imports.append("from triton.language.extra import libdevice")
    new_name = "ModelNew" if entry_point is None or name == "Model" else f"{name}New"
    return {
        "code": assemble(code, name, new_name, new.functions, body, imports),
        "extern": new.extern,
        "mode": captured.mode,
    }


def _inputs(captured: Captured, arguments: list[str]) -> tuple[list[str], list[str], str]:
    """Return the inputs' names in `forward`, the lines that define them, and the device expression."""
    names: list[str] = []
    lines: list[str] = []
    constants: dict[str, str] = {}
    floats: dict[str, str] = {}
    device = ""
    waiting = list(zip(captured.sources, captured.contiguous, strict=True))
    for spec in captured.program.graph_signature.input_specs:
        if spec.kind != InputKind.USER_INPUT:
            name = f"constant{len(constants)}"
            constants[name] = _constant(captured.program.constants.get(spec.target))
            names.append(name)
            continue
        source, contiguous = waiting.pop(0)
        if source.startswith("float:"):
            name = source.rpartition(".")[2]
            while name in names or name in arguments:
                name += "_"
            floats[name] = source.removeprefix("float:")
            names.append(name)
            continue
        if not source.startswith("args["):
            names.append(source)
            continue
        place, _, inner = source.removeprefix("args[").partition("]")
        given = arguments[int(place)] + inner
        name = given if given.isidentifier() else "".join(c if c.isalnum() else "_" for c in given).strip("_")
        if _OURS.fullmatch(name):
            name = f"{name}_given"
        if isinstance(spec.arg, TensorArgument):
            device = device or f"{name}.device"
        if contiguous:
            lines.append(f"{name} = {given}.contiguous()")
        elif name != given:
            lines.append(f"{name} = {given}")
        names.append(name)
    device = device or next((f"{name}.device" for name in names if name.startswith("self.")), "")
    lines += [f"{name} = torch.tensor({text}, device={device})" for name, text in floats.items()]
    lines += [f"{name} = torch.tensor({text}, device={device})" for name, text in constants.items()]
    return names, lines, device


def _constant(value: Any) -> str:
    """Return the literal for a tensor that `forward` builds from numbers."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or value.numel() > _MOST_NUMBERS:
        raise Unwritable("a tensor that is neither a weight nor an input")
    return f"{value.tolist()!r}, dtype={value.dtype}"


def _mutations(captured: Captured, inputs: list[str], results: list[str]) -> list[str]:
    """Write the updates of buffers that the original changes in a call, such as running statistics."""
    signature = captured.program.graph_signature
    places = {spec.arg.name: place for place, spec in enumerate(signature.input_specs)}
    lines = []
    for spec, result in zip(signature.output_specs, results, strict=True):
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            lines.append(f"{inputs[places[spec.target]]}.copy_({result})")
        elif spec.kind != OutputKind.USER_OUTPUT:
            raise Unwritable(f"an output of kind {spec.kind.name}")
    return lines


def _returned(captured: Captured, results: list[str]) -> str:
    specs = captured.program.graph_signature.output_specs
    own = [r for spec, r in zip(specs, results, strict=True) if spec.kind == OutputKind.USER_OUTPUT]
    return _expression(pytree.tree_unflatten(own, captured.program.call_spec.out_spec))


def _expression(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        inner = ", ".join(_expression(one) for one in value)
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_expression(one)}" for key, one in value.items()) + "}"
    raise Unwritable(f"a result of type {type(value).__name__}")
