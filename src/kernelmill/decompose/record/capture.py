"""Capture a model's run as a `Record`. This executes untrusted code: call it only in a sandboxed process.

The model runs once in eval mode, at its own sizes, on fake tensors, which have shapes but no memory. A
function mode sees every call into torch as the author wrote it. `nn.Module.__call__` is patched during the
run, so torch layers are recorded as one call and other modules as scopes. Nothing is compiled and no Python
is interpreted, so anything that runs can be recorded. If the constructor reads values, it runs on real
tensors and only the run is fake. If `forward` reads values, everything is real.

A module that one run does not describe (see `record.keep_whole`) is recorded as one call, and the model runs
on real tensors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import count
from types import ModuleType
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
from torch import nn

from kernelmill.decompose.errors import CannotRecord
from kernelmill.decompose.literals import RESERVED
from kernelmill.decompose.nested import tree_map
from kernelmill.decompose.record.caches import clear_caches
from kernelmill.decompose.record.fake import Fakes
from kernelmill.decompose.record.fast_paths import replaced, without_fast_paths
from kernelmill.decompose.record.keep_whole import RetryWithOpaqueModule, note_constructors
from kernelmill.decompose.record.model_tensors import bound_arguments, tensors_of
from kernelmill.decompose.record.recorder import FILE, CallRecorder
from kernelmill.decompose.record.types import TRAINING, CaptureMode, Float, Int, Op, Record, Scope, Value
from kernelmill.decompose.record.variables import variables
from kernelmill.problems.module_file import forget, init_inputs, inputs, load, where
from kernelmill.torch_calls.recorder import SEQUENCES, fake_sequence
from kernelmill.torch_calls.tensors import map_tensors

NAME = "kernelmill_decomposed"
_MODES: tuple[CaptureMode, ...] = ("fake", "real constructor", "real")
_LARGER = (2, 3, 5, 7, 11, 13)
LOOKED_AT = 1 << 16
"""Parameters of up to this many elements have informative initial values (a scale of ones). Tables and
matrices are larger."""


def capture(code: str) -> Record:
    """Record the model in a source, in the first capture mode that works."""
    failed: list[str] = []
    opaque: dict[str, str] = {}
    for mode in _MODES:
        try:
            record = _with_opaque_modules(code, mode, opaque)
        except CannotRecord:
            raise
        except Exception as error:  # noqa: BLE001  the next mode shows whether the error is the model's own
            failed.append(f"{'real' if opaque else mode}: {where(error, FILE)}")
            if opaque:
                break  # it ran on real tensors: no other mode is left
            continue
        _find_training(record, code)
        _name_variables(record, code)
        kept = [f"{path or 'the model'} is kept whole: {why}" for path, why in opaque.items()]
        record.notes = [*failed, *kept]
        return record
    raise CannotRecord(failed[-1].partition(": ")[2])


def _with_opaque_modules(code: str, mode: CaptureMode, opaque: dict[str, str]) -> Record:
    """Record in a mode. Each opaque module that the run finds is added, and the model runs again, for real."""
    while True:
        try:
            return _capture(code, "real" if opaque else mode, opaque=opaque)
        except RetryWithOpaqueModule as found:
            opaque[found.path] = found.why


def other_shapes(record: Record, code: str) -> dict[Value, tuple[int, ...]]:
    """The shape of every tensor of the record when the inputs have other sizes.

    A size stays the same if the model accepts no other. Two sizes that are equal by chance differ there.
    Empty if no size can be changed, or if the model then makes other calls.
    """
    shapes = [value.shape for value in record.inputs if value.shape is not None]
    changes: dict[tuple[int, int], int] = {}
    number = 0
    found: Record | None = None
    for axis in range(max((len(shape) for shape in shapes), default=0)):
        for size in dict.fromkeys(shape[axis] for shape in shapes if axis < len(shape)):
            places = [at for at, shape in enumerate(shapes) if axis < len(shape) and shape[axis] == size]
            # Use another factor each time, so that an equal height and width become different.
            for new in (_LARGER[number % len(_LARGER)] * size, size >> (number + 1)):
                tried = changes | {(at, axis): new for at in places}
                other = _tried(code, record, tried) if new else None
                if other is not None:
                    changes, found = tried, other
                    number += 1
                    break
    if found is None:
        return {}
    pairs = list(zip(record.inputs, found.inputs, strict=True))
    for op, other_op in zip(record.root.ops(), found.root.ops(), strict=True):
        pairs += zip(op.outputs(), other_op.outputs(), strict=True)
    return {value: other.shape for value, other in pairs if other.shape is not None}


def _tried(code: str, record: Record, sizes: dict[tuple[int, int], int]) -> Record | None:
    try:
        other = _capture(code, record.mode, sizes)
    except Exception:  # noqa: BLE001  the model rejects these sizes, which is what is tested here
        return None
    same = [(op.name, len(op.outputs())) for op in record.root.ops()] == [
        (op.name, len(op.outputs())) for op in other.root.ops()
    ]
    return other if same else None


def _name_variables(record: Record, code: str) -> None:
    """Name results as in the author's file, except inside torch modules."""
    names = variables(code)
    for op in record.root.ops():
        found = names.get(op.position) if op.position and op.scope.own else None
        pairs: list[tuple[Any, str]] = []
        if isinstance(found, str):
            pairs = [(op.output, found)]
        elif found is not None and isinstance(op.output, list | tuple) and len(found) == len(op.output):
            pairs = list(zip(op.output, found, strict=True))
        for value, name in pairs:
            if isinstance(value, Value) and value.op is op and name not in RESERVED:
                value.variable = name


_LIKE_DROPOUT = ("dropout", "batch_norm", "rrelu")


def _find_training(record: Record, code: str) -> None:
    """Replace `False` arguments that are `True` in training with `self.training`.

    If the model makes other calls in training, or does not run, replace each `training` argument and each
    third argument of a dropout.
    """
    asked = [op for op in record.root.ops() if op.module is None and _may_train(op)]
    if not asked:
        return
    try:
        found = list(_capture(code, record.mode, train=True).root.ops())
    except Exception:  # noqa: BLE001  it does not run in training, or one run does not describe it
        found = []
    ops = list(record.root.ops())
    aligned = [(op.name, op.line) for op in ops] == [(op.name, op.line) for op in found]
    then = dict(zip(ops, found, strict=True)) if aligned else {}
    for op in asked:
        other = then.get(op)
        if other is not None:
            trains = {at for at, value in enumerate(other.args) if value is True}
        else:
            trains = {2} if "dropout" in op.short else set()
        op.args = tuple(
            TRAINING if value is False and at in trains else value for at, value in enumerate(op.args)
        )
        if op.kwargs.get("training") is False and (other is None or other.kwargs.get("training") is True):
            op.kwargs["training"] = TRAINING


def _may_train(op: Op) -> bool:
    named = any(name in op.short for name in _LIKE_DROPOUT)
    return op.kwargs.get("training") is False or (named and any(value is False for value in op.args))


def _resized(args: list[Any], kwargs: dict[str, Any], sizes: dict[tuple[int, int], int]) -> Any:
    numbers = count()

    def change(one: torch.Tensor) -> torch.Tensor:
        at = next(numbers)
        return one.new_empty([sizes.get((at, axis), size) for axis, size in enumerate(one.shape)])

    return map_tensors((args, kwargs), change)


@without_fast_paths()
def _capture(
    code: str,
    mode: CaptureMode,
    sizes: dict[tuple[int, int], int] | None = None,
    opaque: dict[str, str] | None = None,
    train: bool = False,
) -> Record:
    clear_caches()
    torch.manual_seed(0)
    with _loaded(code) as module, torch.no_grad():
        vars(module)["int"] = _TrackedInt
        note_constructors(module)
        kind: Any = getattr(module, "Model", None)
        if nn.Module not in getattr(kind, "__mro__", ()):
            raise CannotRecord("it defines no class Model that is an nn.Module")
        if not callable(getattr(module, "get_inputs", None)):
            raise CannotRecord("it defines no get_inputs()")
        fake = Fakes()
        with fake if mode == "fake" else contextlib.nullcontext():
            _, init_args, init_kwargs = init_inputs(module)
            model = kind(*init_args, **init_kwargs).train(train)
            torch.manual_seed(0)  # as the proof does, in case sizes depend on values
            args, kwargs = inputs(module)
        if mode == "real constructor":
            _make_fake(model, fake)
            args, kwargs = map_tensors((args, kwargs), fake.from_tensor)
        with contextlib.nullcontext() if mode == "real" else fake:
            if sizes:
                args, kwargs = _resized(args, kwargs, sizes)
            if any(map(nn.parameter.is_lazy, (*model.parameters(), *model.buffers()))):
                model(*args, **kwargs)  # gives lazy parameters their shapes
            with fake.track_constants():
                return record_run(model, args, kwargs, mode, opaque)


@without_fast_paths()
def build(code: str) -> list[tuple[str, torch.Tensor]]:
    """Build the model and return every tensor by path.

    Large parameters have no memory, if the constructor allows that; everything else is real.
    """
    try:
        with _empty_parameters():
            return _built(code)
    except Exception:  # noqa: BLE001  the constructor ran before: it sets parameters to tensors of its own
        return _built(code)


def _built(code: str) -> list[tuple[str, torch.Tensor]]:
    torch.manual_seed(0)
    with _loaded(code) as module:
        _, init_args, init_kwargs = init_inputs(module)
        return list(tensors_of(module.Model(*init_args, **init_kwargs)))


@contextlib.contextmanager
def _loaded(code: str) -> Iterator[ModuleType]:
    """The source as an imported module, until the end of this context."""
    try:
        yield load(code, NAME, FILE)
    finally:
        forget(NAME)


def record_run(
    model: nn.Module,
    args: list[Any],
    kwargs: dict[str, Any],
    mode: CaptureMode,
    opaque: dict[str, str] | None = None,
) -> Record:
    """Run a built model on its inputs, fake or real, and record it.

    `opaque` maps the paths of modules that are recorded as one call to the reason.
    """
    recorder = CallRecorder(model, opaque or {})
    names = bound_arguments(model.forward, args, kwargs)
    given = {name: tree_map(value, recorder.track_inputs(name)) for name, value in names.items()}
    args, kwargs = recorder.as_given(args), recorder.as_given(kwargs)
    recorder.root.args = given
    with _calls(recorder), _whole_sequences(mode != "real"), recorder:
        output = model(*args, **kwargs)
    if not model.training:  # training updates statistics
        recorder.reject_state_writes()
    root = recorder.root.items[0]
    if isinstance(root, Op):  # the whole model is kept whole
        root.scope = Scope("", type(model).__name__, None, [root])
        root = root.scope
    root.args, root.parent, root.output = given, None, recorder.results(output, root)
    if not any(True for _ in root.ops()):
        raise CannotRecord("its forward calls nothing of torch")
    parameters = {name for name, _ in model.named_parameters()}
    return Record(root, recorder.inputs, mode, recorder.weights, parameters)


class _IsInt(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)


class _TrackedInt(int, metaclass=_IsInt):
    """`int` as the author's file sees it: an integer computed from sizes remembers which."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = int(*args, **kwargs)
        known = args and isinstance(args[0], Int | Float)
        return Int(made, ("int", args[0])) if known else made


def _make_fake(model: nn.Module, fake: Fakes) -> None:
    memo: dict[int, Any] = {}

    def change(one: torch.Tensor) -> Any:
        if id(one) not in memo:
            made = fake.from_tensor(one.detach())
            memo[id(one)] = nn.Parameter(made, one.requires_grad) if isinstance(one, nn.Parameter) else made
        return memo[id(one)]

    for part in model.modules():
        for table in (part._parameters, part._buffers, vars(part)):
            for name, one in list(table.items()):
                if isinstance(one, torch.Tensor) or (
                    isinstance(one, list | tuple) and any(isinstance(item, torch.Tensor) for item in one)
                ):
                    table[name] = map_tensors(one, change)


# -------------------------------------------------------------------------------------------------- recording


@contextlib.contextmanager
def _empty_parameters() -> Iterator[None]:
    """Drop the memory of large parameters as soon as a module registers them: their values are not used."""
    plain = nn.Module.register_parameter

    def register(part: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        plain(part, name, parameter)
        if parameter is None or nn.parameter.is_lazy(parameter):
            return
        if parameter.numel() > LOOKED_AT:
            part._parameters[name] = nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)

    with replaced(nn.Module, register_parameter=register):
        yield


def _calls(recorder: CallRecorder) -> contextlib.AbstractContextManager[None]:
    """Route every module call through the recorder."""
    plain = nn.Module.__call__

    def call(part: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return recorder.module(part, plain, args, kwargs)

    return replaced(nn.Module, __call__=call)


@contextlib.contextmanager
def _whole_sequences(fake: bool) -> Iterator[None]:
    """Compute the outputs of recurrent functions directly, instead of faking them step by step."""
    table: Any = torch._VF
    if fake:
        vars(table).update(dict.fromkeys(SEQUENCES, fake_sequence))
    try:
        yield
    finally:
        for name in SEQUENCES if fake else ():
            del vars(table)[name]
