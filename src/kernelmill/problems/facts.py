"""Facts about a PyTorch module that stages can rely on: what it takes, returns, computes and holds.

`module_facts` reads the source text (`source`) and, given a `Sandbox`, has the module traced in a sandboxed
process (`trace_worker`). A trace covers one run on the module's own inputs: a branch not taken is not in it,
and a module that inspects how it is run can show anything. Facts from the text and from the run are kept
separate.
"""

from __future__ import annotations

import importlib.util
from typing import Literal

import msgspec

from kernelmill.problems.module_file import Convention
from kernelmill.problems.source import ModuleSource, read_source
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.torch_calls.op_kinds import OpKind

TRACE_WORKER = "kernelmill.problems.trace_worker"
"""The worker of a `Sandbox` for `module_facts`."""


class TensorFact(msgspec.Struct, frozen=True):
    """A tensor: `x`, `output[0]`, `output["loss"]`; the dtype as in `float32`."""

    name: str
    shape: list[int]
    dtype: str


class ParameterFact(TensorFact, frozen=True):
    """`owner` is the type of the submodule that holds it: `nn.Linear`, `MyBlock`."""

    learnable: bool
    owner: str


class ValueFact(msgspec.Struct, frozen=True):
    """A value that is not a tensor, as Python source, truncated to a few hundred characters."""

    name: str
    repr: str


class OpFact(msgspec.Struct, frozen=True):
    """One ATen operation that ran.

    `shape` is that of its first output. `flops` counts multiplications and additions of matmul, convolution,
    attention and recurrent operations; it is None for the others, which are memory-bound. `module` is the
    path of the submodule that called it, empty for the module itself. `arguments` are by name, as text: a
    tensor by its origin (`x`, `fc.weight`, `[3]` for the result of the third operation), a constant as it is.
    """

    op: str
    kind: OpKind
    shape: list[int]
    flops: int | None
    module: str
    arguments: dict[str, str]


class Trace(msgspec.Struct, frozen=True):
    """One run of `forward`.

    Mode `fake` allocated no memory and computed no values, so sizes are always the original ones. Mode `real`
    computed values, because the module reads them. `ops` holds the first operations of a long run;
    `ops_left_out` counts the others. `returned` gives the origin of each output tensor, in the notation of an
    operation's arguments. `submodule_types` counts modules: `nn.Linear`, `MyBlock`.
    """

    convention: Convention
    mode: Literal["fake", "real"]
    init_values: list[ValueFact]
    inputs: list[TensorFact]
    input_values: list[ValueFact]
    outputs: list[TensorFact]
    output_values: list[ValueFact]
    returned: list[str]
    parameters: list[ParameterFact]
    buffers: list[TensorFact]
    ops: list[OpFact]
    ops_left_out: int
    submodule_types: dict[str, int]
    seconds: float


class ModuleFacts(msgspec.Struct, frozen=True):
    """`trace_error` says, in one line, why `trace` is None."""

    source: ModuleSource
    trace: Trace | None
    trace_error: str | None


def torch_is_installed() -> bool:
    return importlib.util.find_spec("torch") is not None


async def module_facts(code: str, entry_point: str | None, sandbox: Sandbox | None) -> ModuleFacts:
    """Find everything that can be known about a module.

    Raises `SourceError` if the text cannot be read. A module that cannot be traced is no error: the reason is
    in the facts. Never runs the module in this process.
    """
    source = read_source(code, entry_point)
    if sandbox is None:
        return ModuleFacts(source, None, "not traced: no isolated process was given")
    if not torch_is_installed():
        return ModuleFacts(source, None, "not traced: torch is not installed (the extra `eval` has it)")
    reply = await sandbox.run({"code": code, "entry_point": source.entry_point})
    if reply["kind"] != "ok":
        return ModuleFacts(source, None, sandbox_failure(reply))
    try:
        return ModuleFacts(source, msgspec.convert(reply["result"], Trace), None)
    except msgspec.ValidationError as error:
        return ModuleFacts(source, None, f"the traced process answered something else: {error}")


def sandbox_failure(reply: Reply) -> str:
    """Return why a sandboxed run gave no result, in one line."""
    if reply["kind"] != "error":
        return f"{reply['kind'].replace('_', ' ')}: {reply['message']}"
    return reply["message"] if reply["type"] == "TraceFailed" else f"{reply['type']}: {reply['message']}"
