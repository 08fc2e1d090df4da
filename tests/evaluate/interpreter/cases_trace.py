"""Traces: a call that was recorded runs again elsewhere, and only what was recorded does."""

from __future__ import annotations

import json
import tempfile
import types

import numpy as np
import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import _disable_current_modes
from triton.language.extra import libdevice

from kernelmill.evaluate.judge.channel import Bytes, unpack
from kernelmill.evaluate.judge.worker import Interpreted
from kernelmill.evaluate.trace.kernel_text import NotTheLanguage
from kernelmill.evaluate.trace.recorder import Recorder
from kernelmill.evaluate.trace.replayer import NotReplayable, Replayer
from kernelmill.evaluate.trace.steps import Unrecordable

TWO = tl.constexpr(2.0)
helpers = types.ModuleType("helpers")
"""A module of a candidate's libraries."""
HELD = {"factor": 3.0}


@triton.jit
def _maximum(one, other):
    return tl.where(one > other, one, other)


helpers.maximum, helpers.SIZE = _maximum, 0.25  # type: ignore[attr-defined]


@triton.jit
def _doubled(value):
    return value * TWO


@triton.jit
def _double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, _doubled(tl.load(x + at, mask=at < n)), mask=at < n)


def _plus_one(size):
    return size + 1


@tl.constexpr
def _wider(dtype):
    return tl.float32 if dtype == tl.float16 else dtype


@triton.constexpr_function
def _doubled_size(size):
    return _plus_one(size * 2)


@triton.jit
def _evaluates(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(_wider(tl.float16)) + _doubled_size(BLOCK)
    tl.store(out + at, value, mask=at < n)


_tanh, _cast = libdevice.tanh, tl.cast


@triton.jit
def _renames(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, _tanh(_cast(tl.load(x + at, mask=at < n), tl.float32)), mask=at < n)


@triton.jit
def _by_table(table, n, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    source = tl.load(table).to(tl.pointer_type(tl.float32))
    into = tl.cast(out, tl.pointer_type(tl.float32))
    tl.store(into + at, tl.load(source + at, mask=at < n) + 1, mask=at < n)


@triton.jit
def _by_module(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, helpers.maximum(tl.load(x + at, mask=at < n), helpers.SIZE), mask=at < n)


@triton.jit
def _by_numpy(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, np.negative(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def _looks_things_up(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * HELD["factor"], mask=at < n)


def _launch(x, kernel=_double):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
    return out


class _Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(10, device="cuda"))

    def forward(self, x):
        first, second = _launch(x * self.scale).chunk(2)
        return {"sum": first + second.data, "sizes": [x.shape[0], 0.5]}


def _recorded(make, inputs):
    """The trace of a call as it arrives elsewhere, its constants, and what the call returned."""
    recorder = Recorder()
    with torch.no_grad(), Interpreted().recording(recorder), recorder:
        recorder.seeded("built_with", 5)
        model = make()
        recorder.called()
        recorder.leaves({"inputs": inputs})
        result = model(*inputs)
    recorder.returned(result)
    trace = recorder.trace
    if recorder.trouble:
        raise Unrecordable(recorder.trouble)
    return json.loads(json.dumps(vars(trace))), recorder.constants.sent, result


def _replayed(trace, constants, inputs):
    blobs = Bytes([memoryview(bytearray(blob)) for blob in constants])
    leaves = {f"inputs.{number}": tensor for number, tensor in enumerate(inputs)}
    with tempfile.TemporaryDirectory() as folder, torch._C.DisableTorchFunction():
        replayer = Replayer(trace, folder, lambda packed: unpack(packed, blobs))
        replayer.build(leaves, {"built_with": 5})
        return replayer.call()


def _given(count=1, size=10):
    return [torch.randn(size, device="cuda") for _ in range(count)]


def _raised(call, kind):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def case_a_recorded_call_replays_bit_for_bit_and_on_other_inputs():
    inputs, others = _given(), _given()
    trace, constants, result = _recorded(_Scaled, inputs)
    assert torch.equal(_replayed(trace, constants, inputs)["sum"], result["sum"])
    torch.manual_seed(5)
    model = _Scaled()
    torch.default_generator.manual_seed(5)
    model.scale.data = torch.rand(10, device="cuda")
    with torch.no_grad():
        expected = model(*others)
    again = _replayed(trace, constants, others)
    assert torch.equal(again["sum"], expected["sum"])
    assert again["sizes"] == [10, 0.5]


def case_a_trace_has_the_kernels_of_a_call_and_no_constants_where_all_is_recorded():
    trace, constants, _ = _recorded(lambda: _launch, _given())
    assert [step["grid"] for step in trace["steps"] if "launch" in step] == [[1, 1, 1]]
    assert sorted(kernel["name"] for kernel in trace["kernels"].values()) == ["_double", "_doubled"]
    assert not constants


def case_what_torch_does_with_its_modes_off_is_not_in_a_trace():
    def hidden(x):
        with _disable_current_modes():
            softmax = torch.softmax(x, -1)
        return _launch(softmax)

    inputs, others = _given(), _given()
    trace, constants, result = _recorded(lambda: hidden, inputs)
    assert len(constants) == 1
    assert torch.equal(_replayed(trace, constants, inputs), result)
    assert torch.equal(
        _replayed(trace, constants, others), result
    )  # the old answer, which is wrong for these


def case_what_numpy_writes_to_shared_memory_is_not_in_a_trace():
    def shared(x):
        out = _launch(x)
        np.from_dlpack(out)[...] = 7.0
        return out

    inputs = _given()
    trace, constants, result = _recorded(lambda: shared, inputs)
    assert result.tolist() == [7.0] * 10
    assert torch.equal(_replayed(trace, constants, inputs), inputs[0] * 2)


def case_an_operator_of_ones_own_is_recorded_as_what_it_consists_of():
    @torch.library.custom_op("kernelmill_test::clone", mutates_args=())
    def clone(x: torch.Tensor) -> torch.Tensor:
        return _launch(torch.exp(x))

    inputs, others = _given(), _given()
    trace, constants, _ = _recorded(lambda: clone, inputs)
    assert next(step["op"] for step in trace["steps"] if "op" in step) == "aten.exp.default"
    assert torch.equal(_replayed(trace, constants, others), torch.exp(others[0]) * 2)


def case_a_kernel_that_looks_things_up_in_python_does_not_run_from_its_text():
    trace, constants, _ = _recorded(lambda: lambda x: _launch(x, _looks_things_up), _given())
    [kernel] = trace["kernels"].values()
    assert kernel["unresolved"] == ["HELD"]
    assert "HELD" in _raised(lambda: _replayed(trace, constants, _given()), Exception)


def case_a_kernel_may_use_kernels_and_numbers_of_any_module():
    inputs, others = _given(), _given()
    trace, constants, _ = _recorded(lambda: lambda x: _launch(x, _by_module), inputs)
    assert torch.equal(_replayed(trace, constants, others), others[0].clamp(min=0.25))


def case_a_function_that_the_compiler_evaluates_is_in_the_trace_with_what_it_uses():
    inputs, others = _given(), _given()
    trace, constants, _ = _recorded(lambda: lambda x: _launch(x, _evaluates), inputs)
    kinds = {kernel["name"]: kernel["kind"] for kernel in trace["kernels"].values()}
    assert kinds == {
        "_evaluates": "kernel",
        "_wider": "function",
        "_doubled_size": "constexpr_function",
        "_plus_one": "function",
    }
    assert torch.equal(_replayed(trace, constants, others), others[0] + 33.0)


def case_functions_of_the_language_are_found_under_other_names():
    inputs, others = _given(), _given()
    trace, constants, _ = _recorded(lambda: lambda x: _launch(x, _renames), inputs)
    assert torch.allclose(_replayed(trace, constants, others), torch.tanh(others[0]))


def case_a_table_of_addresses_points_to_the_same_tensors_in_a_replay():
    def by_address(x):
        twice, out = x * 2, torch.empty_like(x)
        table = torch.tensor([twice.data_ptr(), out.data_ptr()], dtype=torch.int64, device="cuda")
        _by_table[(1,)](table, x.numel(), out.data_ptr(), BLOCK=16)
        return out

    inputs, others = _given(), _given()
    trace, constants, result = _recorded(lambda: by_address, inputs)
    assert torch.equal(result, inputs[0] * 2 + 1)
    assert torch.equal(_replayed(trace, constants, others), others[0] * 2 + 1)


def case_a_kernel_that_calls_numpy_does_not_run_from_its_text():
    trace, constants, _ = _recorded(lambda: lambda x: _launch(x, _by_numpy), _given())
    assert "numpy.negative" in _raised(lambda: _replayed(trace, constants, _given()), Exception)


def case_a_replay_knows_only_operations_of_torchs_own():
    trace, constants, _ = _recorded(lambda: torch.neg, _given())
    for step in trace["steps"]:
        if "op" in step:
            step["op"] = "kernelmill_test.anything.default"
    assert "torch's own" in _raised(lambda: _replayed(trace, constants, _given()), NotReplayable)


def case_a_trace_cannot_work_on_the_inputs_before_the_call():
    trace, constants, _ = _recorded(lambda: torch.exp, _given())
    steps = trace["steps"]
    steps.append(steps.pop(next(at for at, step in enumerate(steps) if "called" in step)))
    assert "before the call" in _raised(lambda: _replayed(trace, constants, _given()), NotReplayable)


def case_a_trace_cannot_name_a_module_that_is_not_tritons():
    trace, constants, _ = _recorded(lambda: _launch, _given())
    for kernel in trace["kernels"].values():
        kernel["uses"]["tl"] = {"module": "os"}
    assert "os" in _raised(lambda: _replayed(trace, constants, _given()), NotTheLanguage)


def case_a_tensor_of_a_kind_that_a_trace_cannot_hold_is_refused_by_name():
    class Lazy(torch.Tensor):
        pass

    def subclassed(x):
        return x.as_subclass(Lazy)

    assert "Lazy" in _raised(lambda: _recorded(lambda: subclassed, _given()), Unrecordable)
