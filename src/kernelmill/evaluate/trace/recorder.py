"""Record what a model does, in the process that runs it: torch's operations, and launches of kernels.

Torch reports its operations to a dispatch mode, and the runtime its launches (`launched`). Tensors are told apart
by identity, and memory by its storage: a tensor that no recorded step has made is a view of known memory, or else
a constant. What cannot be recorded ends the recording and not the call: `trouble` names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelmill.evaluate.judge.channel import DTYPES, Bytes, pack
from kernelmill.evaluate.judge.torch_work import HOST_READS
from kernelmill.evaluate.task.values import seed_all, told_of_seeds
from kernelmill.evaluate.trace.kernel_text import is_foreign, packed_value, text_of
from kernelmill.evaluate.trace.replayer import leaves_of
from kernelmill.evaluate.trace.steps import (
    MOST_CONSTANT_BYTES,
    MOST_CONSTANTS,
    MOST_STEPS,
    Trace,
    Unrecordable,
)
from kernelmill.torch_calls.recorder import OpRecorder, is_own
from kernelmill.torch_calls.tensors import is_sparse, parts_of, tensors_in

_TORCH = (torch.dtype, torch.layout, torch.memory_format)
_MOST_ADDRESSES = 1 << 16
_LEAST_ADDRESS = 1 << 16
"""Of a process: where Python is at a fixed place, small tensors are at a few million bytes."""
_SURELY_AN_ADDRESS = 1 << 32
_storage = torch.Tensor.untyped_storage
_device = torch.Tensor.device.__get__
_cpu = torch.Tensor.cpu


class Recorder(OpRecorder):
    """A context in which a model is built and called. Afterwards `trace` holds the program."""

    def __init__(self) -> None:
        super().__init__()
        self.trace = Trace()
        self.trouble = ""
        """Why there is no trace."""
        self.constants = Bytes()
        self._numbers: dict[int, int] = {}
        """Numbers of tensors, by id."""
        self._alive: list[torch.Tensor] = []
        """All numbered tensors, so that no id is used again."""
        self._memory: dict[int, int] = {}
        """The first tensor of a storage, by the storage's address."""
        self._bytes = 0
        self._reads = _Reads(self)
        self._captured_from = 0
        self._graphs: dict[int, tuple[Any, list[dict[str, Any]]]] = {}
        """Captured graphs by id, and the steps of each."""

    def _seeded_apart(self, by: int | None) -> None:
        with self._recording():
            self._step({"seed_apart": by})

    def __enter__(self) -> Recorder:
        told_of_seeds.append(self._seeded_apart)
        self._reads.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *what: Any) -> None:
        super().__exit__(*what)
        self._reads.__exit__(*what)
        told_of_seeds.remove(self._seeded_apart)

    def seeded(self, name: str, number: int) -> None:
        """Seed all generators with the number that is given under this name."""
        seed_all(number)
        self._step({"seed": name})

    def leaves(self, given: dict[str, Any]) -> None:
        """Name the tensors that are given from outside."""
        for path, tensor in leaves_of(given).items():
            if id(tensor) not in self._numbers:  # one may be given twice
                self._step({"leaf": path, "out": self._number(tensor)})

    def capturing(self, graph: Any) -> None:
        """What follows is captured, and does not run."""
        self._captured_from = len(self.trace.steps)

    def captured(self, graph: Any) -> None:
        """The end of that. Its tensors exist from now on, with nothing in them: running it once does no harm."""
        steps = self.trace.steps[self._captured_from :]
        self._graphs[id(graph)] = graph, [step | {"in_place": True} for step in steps]

    def replays(self, graph: Any) -> None:
        """A graph runs."""
        with self._recording():
            if id(graph) not in self._graphs:
                raise Unrecordable("a CUDA graph that was captured before")
            for step in self._graphs[id(graph)][1]:
                self._step(step)

    def read(self, tensor: torch.Tensor) -> None:
        """The host reads a tensor's numbers."""
        if not (self._muted or self.trouble):
            with self._recording():
                self._step({"read": self._known(tensor)})

    def called(self) -> None:
        """The model is built, and now it is called."""
        self._step({"called": True})

    def returned(self, result: Any) -> None:
        """The call has returned this."""
        with self._recording():
            self.trace.output = self._value(result)

    def returned_again(self, result: Any) -> None:
        """The second call has returned this."""
        with self._recording():
            self.trace.again = self._value(result)

    def close(self) -> None:
        """Free the tensors."""
        self._alive.clear()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        try:
            yield
        except Unrecordable as error:
            self.trouble = self.trouble or str(error)

    # ------------------------------------------------------------------------------------------- what is seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._muted or self.trouble:
            return func(*args, **kwargs)
        if not is_own(func):
            try:
                return self.inside(func, args, kwargs)
            except NotImplementedError:
                self.trouble = f"{func} is not an operation of torch's own"
                return func(*args, **kwargs)
        with self._recording():
            given = self._value(list(args)), {name: self._value(value) for name, value in kwargs.items()}
        out = func(*args, **kwargs)
        with self._recording():
            if not self.trouble:
                outs = [self._number(tensor) for tensor in tensors_in(out)]
                self._step({"op": str(func), "args": given[0], "kwargs": given[1], "outs": outs})
        return out

    def launched(
        self, kernel: Any, bound: dict[str, Any], grid: tuple[int, ...], options: dict[str, Any]
    ) -> None:
        """Take a launch: a kernel, its arguments by name, the grid, and options that are no arguments."""
        if self._muted or self.trouble:
            return
        with self._recording(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            key = text_of(kernel, self.trace.kernels)
            arguments = {name: self._argument(value) for name, value in bound.items()}
            others = {name: self._argument(value) for name, value in options.items() if name not in bound}
            self._step({"launch": key, "grid": list(grid), "args": arguments, "options": others})

    def _step(self, step: dict[str, Any]) -> None:
        if len(self.trace.steps) >= MOST_STEPS:
            raise Unrecordable(f"it takes more than {MOST_STEPS:,} steps")
        self.trace.steps.append(step)

    # ---------------------------------------------------------------------------------------------- values

    def _number(self, tensor: torch.Tensor) -> int:
        number = self._numbers.get(id(tensor))
        if number is None:
            number = self._numbers[id(tensor)] = len(self._alive)
            self._alive.append(tensor)
            with torch._C.DisableTorchFunction():
                if tensor.layout is torch.strided and (address := _address_of(tensor)):
                    self._memory.setdefault(address, number)
        return number

    def _known(self, tensor: torch.Tensor) -> int:
        """The tensor's number. One that no step has made is a view of known memory, or a constant."""
        if id(tensor) in self._numbers:
            return self._numbers[id(tensor)]
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise Unrecordable(f"a tensor of type {type(tensor).__name__}, layout {tensor.layout}")
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            name = str(tensor.dtype).removeprefix("torch.")
            if name not in DTYPES:
                raise Unrecordable(f"a tensor of {name}")
            base = self._memory.get(_address_of(tensor)) if tensor.numel() else None
            if base is not None and _is_the_same(tensor, self._alive[base]):
                return base
            shape: dict[str, Any] = {"size": list(tensor.size()), "stride": list(tensor.stride())}
            if base is not None:
                shape |= {"view": base, "offset": tensor.storage_offset(), "dtype": name}
            else:
                self._bytes += tensor.numel() * tensor.element_size()
                if self._bytes > MOST_CONSTANT_BYTES or len(self.constants.sent) >= MOST_CONSTANTS:
                    raise Unrecordable("its constants are too large")
                shape |= {"constant": len(self.constants.sent), "device": _device(tensor).type}
                own = tensor.detach() if shape["device"] == "cpu" else _cpu(tensor.detach())
                if name in ("int64", "uint64") and (addresses := self._addresses(own)):
                    shape["addresses"] = addresses
                    own = own.clone()
                    own.view(-1).view(torch.int64)[[place for place, _, _ in addresses]] = 0
                shape["value"] = pack(own, self.constants)
        self._step(shape | {"out": self._number(tensor)})
        return self._numbers[id(tensor)]

    def _addresses(self, numbers: torch.Tensor) -> list[list[int]]:
        """Of numbers that are addresses of known memory, or zero: their place, the tensor, and the bytes into its storage."""
        if numbers.numel() > _MOST_ADDRESSES or not numbers.is_contiguous():
            return []
        given = [(place, number) for place, number in enumerate(numbers.view(-1).tolist()) if number]
        found = [[place, *at] for place, number in given if (at := self._address(number))]
        return found if len(found) == len(given) else []

    def _address(self, number: int) -> list[int]:
        """The tensor in whose storage this address is, and how far into it; nothing for any other number."""
        if number < _LEAST_ADDRESS:
            return []
        start = max((start for start in self._memory if start <= number), default=None)
        if start is None or number >= start + _storage(self._alive[self._memory[start]]).nbytes():
            return []
        return [self._memory[start], number - start]

    def _value(self, value: Any) -> Any:
        """An argument of an operation, or a result, as data."""
        if isinstance(value, torch.Tensor):
            return self._sparse(value) if is_sparse(value) else {"t": self._known(value)}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return {"float": float.hex(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, _TORCH):
            return {"torch": str(value).removeprefix("torch.")}
        if isinstance(value, (list, torch.Size)):
            return [self._value(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [self._value(item) for item in value]}
        if isinstance(value, dict) and all(type(key) is str for key in value):
            return {"dict": {key: self._value(item) for key, item in value.items()}}
        if isinstance(value, torch.Generator) and value is torch.default_generator:
            return None
        raise Unrecordable(f"a value of type {type(value).__name__}")

    def _sparse(self, tensor: torch.Tensor) -> Any:
        """A sparse tensor by its parts."""
        return {"sparse": [self._value(part) for part in parts_of(tensor)]}

    def _argument(self, value: Any) -> Any:
        """An argument of a launch as data."""
        if isinstance(value, torch.Tensor):
            return {"t": self._known(value)}
        if isinstance(value, TensorDescriptor):
            fields = (value.shape, value.strides, value.block_shape)
            return {
                "descriptor": [
                    self._argument(value.base),
                    *(list(map(int, one)) for one in fields),
                    value.padding,
                ]
            }
        if isinstance(value, tuple):
            return {"tuple": [self._argument(item) for item in value]}
        at = self._address(value) if type(value) is int else []
        if at and (at[1] == 0 or value >= _SURELY_AN_ADDRESS):
            return {"address": at}
        packed = packed_value(value, self.trace.kernels)
        if is_foreign(packed):
            raise Unrecordable(f"a kernel's argument of type {type(value).__name__}")
        return packed


def _is_the_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are one, told apart by Python only: parts of a sparse tensor are new objects each time."""
    return (one.dtype, one.size(), one.stride(), one.storage_offset()) == (
        other.dtype,
        other.size(),
        other.stride(),
        other.storage_offset(),
    )


def _address_of(tensor: torch.Tensor) -> int:
    try:
        return int(_storage(tensor).data_ptr())
    except (RuntimeError, NotImplementedError) as error:  # a wrapper: of vmap, of a gradient
        raise Unrecordable("a tensor without memory of its own") from error


class _Reads(TorchFunctionMode):  # type: ignore[misc]
    """Notes what the host reads by functions that dispatch no operation."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in HOST_READS and func is not torch.Tensor.item:  # which is an operation
            self._recorder.read(args[0])
        return func(*args, **(kwargs or {}))
