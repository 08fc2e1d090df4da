"""Run a trace on inputs and weights of one's own, in a process that has never loaded the candidate.

Only torch's own operations are known here, by their names in `torch.ops.aten`, and only kernels that are made
from their text. The trace comes from an untrusted process: this one must be confined like it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelmill.evaluate.judge.channel import DTYPES
from kernelmill.evaluate.task.values import seed_all, seeded_apart
from kernelmill.evaluate.trace.kernel_text import Kernels
from kernelmill.evaluate.trace.steps import READS_SIZES, reads
from kernelmill.torch_calls.tensors import Sparse, tensors_in


class NotReplayable(Exception):
    """The trace asks for what no program of torch and Triton does."""


def leaves_of(given: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors that a program starts from, by path: `init.0`, `state.1`, `inputs.0`."""
    return {
        f"{name}.{number}": tensor
        for name, value in given.items()
        for number, tensor in enumerate(tensors_in(value))
    }


class Read:
    """What the host reads in one run."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.elements = 0
        self.bits = 0

    def result(self, out: Any, made: list[torch.Tensor], sizes: bool) -> None:
        """Take the result of an operation. Of some the host learns no more than the sizes."""
        for tensor in made:
            if sizes:
                self._take(repr(tuple(tensor.shape)).encode(), 0)
            else:
                self.numbers(tensor)
        if not made:
            self._take(repr(out).encode(), 1, bits=64)

    def numbers(self, tensor: torch.Tensor) -> None:
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            held = tensor.detach().cpu().contiguous().reshape(-1)
            data = held.view(torch.uint8).numpy().tobytes() if held.numel() else b""
        self._take(data, tensor.numel())

    def _take(self, data: bytes, elements: int, bits: int | None = None) -> None:
        self._hash.update(len(data).to_bytes(8, "little") + data)
        self.bits += 8 * len(data) if bits is None else bits
        self.elements += elements

    def to_dict(self) -> dict[str, Any]:
        return {"hash": self._hash.hexdigest(), "bits": self.bits}


class Replayer:
    """The kernels of one trace, made once. `constant` gives the tensor of a step's packed value."""

    def __init__(
        self, trace: dict[str, Any], folder: str, constant: Callable[[dict[str, Any]], torch.Tensor]
    ) -> None:
        self._steps, self._output = trace["steps"], trace["output"]
        self._kernels = Kernels(trace["kernels"], folder)
        self._constants = {
            step["constant"]: constant(step["value"]).to(step["device"])
            for step in self._steps
            if "constant" in step
        }
        self._values: dict[int, torch.Tensor] = {}
        self._again = trace.get("again")
        begins = [at for at, step in enumerate(self._steps) if "called" in step]
        self._refuse_early_inputs(begins)
        self._called, self._called_again = (*(begins or [0]), len(self._steps))[:2]
        self._dead = _last_uses(self._steps, [self._output, self._again])
        self._given: dict[str, Any] = {}
        self._apart = ExitStack()
        self.read = Read()

    def _refuse_early_inputs(self, begins: list[int]) -> None:
        """What is done before a call is not counted as work of that call, so its inputs do not exist then."""
        for name, begin in zip(("inputs", "again"), [*begins, *[len(self._steps)] * 2][:2], strict=True):
            if any(str(step.get("leaf", "")).startswith(name) for step in self._steps[:begin]):
                raise NotReplayable(f"it uses {name} before the call")

    def build(self, leaves: dict[str, torch.Tensor], seeds: dict[str, int]) -> None:
        """Run the steps that build the model.

        `leaves` are the tensors given from outside, by path. They may be changed in place. `seeds` are by name.
        """
        self._values = {}
        self._given = {"leaves": leaves, "seeds": seeds}
        self.read = Read()
        with torch.no_grad():
            for at in range(self._called):
                self._run(at)

    def call(self, keep: bool = False) -> Any:
        """Run the steps of the call, once, after `build`. Returns its result. `keep` what `again` needs."""
        try:
            result = self._section(self._called, self._called_again, self._output)
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                self._values = {}
            self._given = {}
        return result

    def again(self, *args: Any, **kwargs: Any) -> Any:
        """Run the steps of the second call, as often as wanted, after `call` with `keep`."""
        self._given = {"leaves": leaves_of({"again": (args, kwargs)})}
        kept, self._values = self._values, dict(self._values)
        try:
            return self._section(self._called_again, len(self._steps), self._again)
        finally:
            self._values = kept

    def _section(self, start: int, end: int, output: Any) -> Any:
        with torch.no_grad():
            for at in range(start, end):
                self._run(at)
            return self._value(output)

    def _run(self, at: int) -> None:
        self._step(self._steps[at])
        for number in self._dead.get(at, ()):  # its memory can be used again, as in the candidate's own call
            self._values.pop(number, None)

    def _step(self, step: dict[str, Any]) -> None:
        if "op" in step:
            self._operation(step)
        elif "launch" in step:
            arguments = {name: self._value(value) for name, value in step["args"].items()}
            options = {name: self._kernels.value(value) for name, value in step["options"].items()}
            self._kernels[step["launch"]][tuple(step["grid"])](**arguments, **options)
        elif "called" in step:
            pass
        elif "read" in step:
            self.read.numbers(self._value({"t": step["read"]}))
        elif "seed" in step:
            seed_all(self._given["seeds"][step["seed"]])
        elif "seed_apart" in step:
            self._seed_apart(step["seed_apart"])
        elif "leaf" in step:
            if step["leaf"] not in self._given["leaves"]:
                raise NotReplayable(f"it starts from {step['leaf']}, which is not given")
            self._values[step["out"]] = self._given["leaves"][step["leaf"]]
        else:
            with torch._C._DisableTorchDispatch():  # no work of the program's
                self._values[step["out"]] = self._view(step) if "view" in step else self._constant(step)

    def _seed_apart(self, by: int | None) -> None:
        if by is None:
            self._apart.close()
        else:
            self._apart.enter_context(seeded_apart(by))

    def _view(self, step: dict[str, Any]) -> torch.Tensor:
        base = self._values[step["view"]]
        flat = torch.empty(0, dtype=DTYPES[step["dtype"]], device=base.device)
        return flat.set_(base.untyped_storage(), step["offset"], step["size"], step["stride"])

    def _constant(self, step: dict[str, Any]) -> torch.Tensor:
        new = self._constants[step["constant"]]
        own = torch.empty_strided(step["size"], step["stride"], dtype=new.dtype, device=step["device"])
        own.copy_(new)
        for place, number, offset in step.get("addresses", ()):
            own.view(-1).view(torch.int64)[place] = self._address(number, offset)
        return own

    def _address(self, number: int, offset: int) -> int:
        return int(self._values[number].untyped_storage().data_ptr() + offset)

    def _operation(self, step: dict[str, Any]) -> None:
        space, _, rest = step["op"].partition(".")
        name, _, overload = rest.partition(".")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        if packet is None or overload not in packet.overloads():
            raise NotReplayable(f"{step['op']} is not an operation of torch's own")
        given = {key: self._value(value) for key, value in step["kwargs"].items()}
        out = getattr(packet, overload)(*self._value(step["args"]), **given)
        made = tensors_in(out)
        if reads(step):
            self.read.result(out, made, step["op"] in READS_SIZES)
        if len(made) != len(step["outs"]):
            raise NotReplayable(f"{step['op']} returned {len(made)} tensors instead of {len(step['outs'])}")
        for number, tensor in zip(step["outs"], made, strict=True):
            self._values[number] = self._in_place(step, number, tensor)

    def _in_place(self, step: dict[str, Any], number: int, new: torch.Tensor) -> torch.Tensor:
        """What a captured graph makes is in the same memory each time that it runs."""
        old = self._values.get(number) if step.get("in_place") else None
        if old is None or old.shape != new.shape or old.dtype != new.dtype:
            return new
        if old.data_ptr() != new.data_ptr() and not step["op"].startswith("aten.empty"):
            old.copy_(new)
        return old

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
        if kind == "address":
            return self._address(*inner)
        if kind == "sparse":
            return Sparse(*map(self._value, inner)).assembled()
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


def _last_uses(steps: list[dict[str, Any]], output: Any) -> dict[int, list[int]]:
    """The tensors that no step needs any more, by the number of the step after which that is so."""
    last: dict[int, int] = {}
    for at, step in enumerate(steps):
        for number in _tensors(step):
            last[number] = at
    for number in (*_tensors(output), *_addressed(steps)):
        last.pop(number, None)
    found: dict[int, list[int]] = {}
    for number, at in last.items():
        found.setdefault(at, []).append(number)
    return found


def _addressed(value: Any) -> Iterator[int]:
    """The numbers of the tensors whose memory's address is among the numbers of a program."""
    if isinstance(value, list):
        for item in value:
            yield from _addressed(item)
    elif isinstance(value, dict):
        if "address" in value:
            yield value["address"][0]
        for _, number, _ in value.get("addresses", ()):
            yield number
        yield from _addressed(value.get("args"))


def _tensors(value: Any) -> Iterator[int]:
    """The numbers of the tensors in a step or a value."""
    if isinstance(value, list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("t", "view", "out", "read") and isinstance(item, int):
                yield item
            elif key == "outs":
                yield from item
            else:
                yield from _tensors(item)
