"""Run a trace on inputs and weights of one's own, in a process that has never loaded the candidate.

Only torch's own operations are known here, by their names in `torch.ops.aten`, and only kernels that are made
from their text. The trace comes from an untrusted process: this one must be confined like it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelmill.evaluate.judge.channel import DTYPES
from kernelmill.evaluate.task.values import seed_all
from kernelmill.evaluate.trace.kernel_text import Kernels
from kernelmill.torch_calls.tensors import tensors_in


class NotReplayable(Exception):
    """The trace asks for what no program of torch and Triton does."""


def leaves_of(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that a program starts from, by path: `init.0`, `state.1`, `inputs.0`."""
    return {
        f"{name}.{number}": tensor
        for name, value in given.items()
        for number, tensor in enumerate(tensors_in(value))
    }


class Replayer:
    """The kernels of one trace, made once. `constant` gives the tensor of a step's packed value."""

    def __init__(
        self, trace: dict[str, Any], folder: str, constant: Callable[[dict[str, Any]], torch.Tensor]
    ) -> None:
        self._steps, self._output = trace["steps"], trace["output"]
        self._kernels = Kernels(trace["kernels"], folder)
        self._constants = {
            step["constant"]: constant(step["value"]) for step in self._steps if "constant" in step
        }
        self._values: dict[int, torch.Tensor] = {}
        self._built = next((at for at, step in enumerate(self._steps) if "called" in step), 0)

    def build(self, leaves: dict[str, torch.Tensor]) -> None:
        """Run the steps that build the model.

        `leaves` are the tensors given from outside, by path. They may be changed in place.
        """
        self._values = {}
        with torch.no_grad():
            for step in self._steps[: self._built]:
                self._run(step, leaves)

    def call(self, leaves: dict[str, torch.Tensor]) -> Any:
        """Run the steps of the call, once, after `build` with the same leaves. Returns its result."""
        try:
            with torch.no_grad():
                for step in self._steps[self._built :]:
                    self._run(step, leaves)
                return self._value(self._output)
        finally:
            self._values = {}

    def _run(self, step: dict[str, Any], leaves: dict[str, torch.Tensor]) -> None:
        if "op" in step:
            self._operation(step)
        elif "launch" in step:
            arguments = {name: self._value(value) for name, value in step["args"].items()}
            options = {name: self._kernels.value(value) for name, value in step["options"].items()}
            self._kernels[step["launch"]][tuple(step["grid"])](**arguments, **options)
        elif "called" in step:
            pass
        elif "seed" in step:
            seed_all(step["seed"])
        elif "leaf" in step:
            if step["leaf"] not in leaves:
                raise NotReplayable(f"it starts from {step['leaf']}, which is not given")
            self._values[step["out"]] = leaves[step["leaf"]]
        elif "view" in step:
            base = self._values[step["view"]]
            flat = torch.empty(0, dtype=DTYPES[step["dtype"]])
            flat.set_(base.untyped_storage(), step["offset"], step["size"], step["stride"])
            self._values[step["out"]] = flat
        else:
            new = self._constants[step["constant"]]
            own = torch.empty_strided(step["size"], step["stride"], dtype=new.dtype)
            self._values[step["out"]] = own.copy_(new)

    def _operation(self, step: dict[str, Any]) -> None:
        space, _, rest = step["op"].partition(".")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        if packet is None or overload not in packet.overloads():
            raise NotReplayable(f"{step['op']} is not an operation of torch's own")
        given = {key: self._value(value) for key, value in step["kwargs"].items()}
        out = getattr(packet, overload)(*self._value(step["args"]), **given)
        made = tensors_in(out)
        if len(made) != len(step["outs"]):
            raise NotReplayable(f"{step['op']} returned {len(made)} tensors instead of {len(step['outs'])}")
        self._values |= dict(zip(step["outs"], made, strict=True))

    def _value(self, packed: Any) -> Any:
        if isinstance(packed, list):
            return [self._value(item) for item in packed]
        if not isinstance(packed, dict):
            return packed
        [(kind, inner)] = packed.items()
        if kind == "t":
            if inner not in self._values:
                raise NotReplayable("a tensor is used before a step has made it")
            return self._values[inner]
        if kind == "torch":
            return getattr(torch, inner)
        if kind == "device":
            return torch.device(inner)
        if kind == "tuple":
            return tuple(self._value(item) for item in inner)
        if kind == "dict":
            return {key: self._value(item) for key, item in inner.items()}
        if kind == "descriptor":
            base, shape, strides, block, padding = inner
            return TensorDescriptor(self._value(base), shape, strides, block, padding)
        return self._kernels.value(packed)
