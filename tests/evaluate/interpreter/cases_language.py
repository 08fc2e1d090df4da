"""Kernels mean what the compiler would make of them, and torch looks as it does on a GPU box."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language import exp as imported_exp

from kernelmill.evaluate.fake_gpu import host
from kernelmill.evaluate.interpreter import Unsupported, is_unsupported, observer
from tests.evaluate.interpreter.raised import raised_by


@triton.jit
def _logic(x, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    inside = (a > 0) and (at < n)
    outside = not inside
    either = (a > 0) or (at < n)
    tl.store(out + at, inside.to(tl.int32) + outside.to(tl.int32) * 10 + either.to(tl.int32) * 100)


def case_and_or_not_work_on_every_element():
    x = torch.tensor([1.0, -1.0, 1.0, -1.0])
    out = torch.empty(4, dtype=torch.int32)
    _logic[(1,)](x, out, 2, N=4)
    assert out.tolist() == [101, 110, 110, 10]


@triton.jit
def _loops(out, n, N: tl.constexpr):
    total = tl.zeros((N,), dtype=tl.int64)
    for i in range(n):
        total += i.to(tl.int64)
    for j in tl.range(0, n, 2):
        total += j
    for k in tl.static_range(3):
        total += k
    i = 0
    while i < n and i < 100:
        total += 1
        i += 1
    tl.store(out + tl.arange(0, N), total)


def case_loops_of_every_kind():
    out = torch.empty(2, dtype=torch.int64)
    _loops[(1,)](out, 5, N=2)
    assert out.tolist() == [sum(range(5)) + sum(range(0, 5, 2)) + 3 + 5] * 2


def _made(factor):
    @triton.jit
    def scaled(x, out, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(out + at, tl.load(x + at) * factor)

    return scaled


def case_a_kernel_made_inside_a_function_sees_its_variables():
    x, out = torch.randn(16), torch.empty(16)
    _made(3)[(1,)](x, out, N=16)
    assert torch.equal(out, x * 3)


@triton.jit
def _imported(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, imported_exp(tl.load(x + at)).sum(axis=0))


def case_names_imported_from_the_language_and_tensor_methods_work():
    x, out = torch.randn(16), torch.empty(16)
    _imported[(1,)](x, out, N=16)
    assert torch.allclose(out, x.exp().sum().expand(16))


@triton.jit
def _arguments(x, out, scale, flag, bias, n, N: tl.constexpr, ACTIVATION: tl.constexpr, DTYPE: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at, mask=at < n, other=0.0).to(DTYPE) * scale
    if bias is not None:
        a += tl.load(bias + at)
    if flag:
        a = ACTIVATION(a)
    tl.store(out + at, a, mask=at < n)


@triton.jit
def _relu(x):
    return tl.maximum(x, 0.0)


def case_arguments_of_every_kind():
    x, out, bias = torch.randn(16), torch.empty(16), torch.randn(16)
    _arguments[(1,)](x, out, 0.5, True, bias, 16, N=16, ACTIVATION=_relu, DTYPE=tl.float32)
    assert torch.equal(out, torch.relu(x * 0.5 + bias))
    _arguments[(1,)](x, out, 2.0, False, None, 1, N=16, ACTIVATION=_relu, DTYPE=tl.float32)
    assert out[0] == x[0] * 2


def case_a_signature_is_what_triton_would_specialise_on():
    x, out = torch.randn(33), torch.empty(33)
    observer.begin()
    for _ in range(2):
        _arguments[(1,)](
            x[1:], out, 0.5, True, None, 1, N=16, ACTIVATION=_relu, DTYPE=tl.float32, num_warps=8
        )
    _arguments[(1,)](x, out, 0.5, True, None, 2**40, N=16, ACTIVATION=_relu, DTYPE=tl.float16)
    seen = observer.end()
    assert [launch.signature for launch in seen.launches] == [0, 0, 1]
    first, second = seen.signatures
    assert first["signature"] == {
        "x": "*fp32",
        "out": "*fp32",
        "scale": "fp32",
        "flag": "u1",
        "bias": "constexpr",
        "n": "constexpr",
        "N": "constexpr",
        "ACTIVATION": "constexpr",
        "DTYPE": "constexpr",
    }
    assert first["constexprs"] == {
        "bias": None,
        "n": 1,
        "N": 16,
        "ACTIVATION": {"function": "_relu"},
        "DTYPE": "tl.float32",
    }
    assert first["attrs"] == ["out"]
    assert (first["num_warps"], second["num_warps"]) == (8, 4)
    assert second["signature"]["n"] == "i64"
    assert second["attrs"] == ["x", "out", "n"]


def case_what_a_gpu_launch_refuses_is_refused():
    x, out = torch.randn(16), torch.empty(16)
    given = {"N": 16, "ACTIVATION": _relu, "DTYPE": tl.float32}
    refused = [
        (KeyError, lambda: _arguments[(1,)](x, out, 0.5, True, None, 16, **given, num_wraps=4)),
        (AssertionError, lambda: _arguments[(1,)](x, out, 0.5, True, None, 16, **given, num_warps=3)),
        (TypeError, lambda: _arguments[(1,)](x, out, 0.5, True, **given)),
        (TypeError, lambda: _arguments[(1.0,)](x, out, 0.5, True, None, 16, **given)),
        (RuntimeError, lambda: _arguments[(1, 70_000)](x, out, 0.5, True, None, 16, **given)),
        (RuntimeError, lambda: _relu(x)),
        (RuntimeError, lambda: tl.cdiv(10, 3)),
    ]
    for number, (kind, launch) in enumerate(refused):
        try:
            launch()
        except kind:
            continue
        raise AssertionError(f"refusal {number} did not come")


def case_an_empty_grid_runs_nothing():
    x, out = torch.randn(16), torch.zeros(16)
    observer.begin()
    _arguments[(0,)](x, out, 0.5, True, None, 16, N=16, ACTIVATION=_relu, DTYPE=tl.float32)
    assert observer.end().launches[0].programs == 0
    assert not out.any()


def case_the_candidates_module_gets_no_stray_names():
    case_arguments_of_every_kind()
    for name in ("np", "math", "textwrap", "TensorHandle", "interpreter_semantic"):
        assert name not in globals()


@triton.jit
def _branch_on_block(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a = tl.load(x + at)
    if a > 0:
        a = a * 2
    tl.store(out + at, a)


def case_a_branch_on_a_block_is_an_error():
    x, out = torch.randn(16), torch.empty(16)
    error = raised_by(lambda: _branch_on_block[(1,)](x, out, N=16))
    assert isinstance(error, TypeError)
    assert "condition" in str(error)
    assert is_unsupported(error) is None


class _Closure(NamedTuple):
    fn: Any
    captured: tuple[Any, ...]


@triton.jit
def _scaled_by(x, scale):
    return x * tl.load(scale)


@triton.jit
def _calls_a_closure(x, closure, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, closure.fn(tl.load(x + at), *closure.captured))


def case_a_named_tuple_carries_a_function_and_tensors():
    x, out = torch.randn(16), torch.empty(16)
    observer.begin()
    _calls_a_closure[(1,)](x, _Closure(_scaled_by, (torch.tensor([3.0]),)), out, N=16)
    observer.end()
    torch.testing.assert_close(out, x * 3)


def case_nothing_says_that_a_kernel_is_interpreted():
    assert isinstance(_scaled_by, triton.JITFunction)
    assert isinstance(_scaled_by, triton.runtime.jit.JITFunction)
    assert type(_scaled_by).__name__ == "JITFunction"
    assert not triton.knobs.runtime.interpret
    assert "TRITON_INTERPRET" not in os.environ


def case_a_rewritten_kernel_knows_its_line():
    _scaled_by.rewrite()
    assert _scaled_by.rewriter.def_file_lineno == _scaled_by.fn.__code__.co_firstlineno + 1


@triton.jit
def _descriptor(desc, out, M: tl.constexpr, N: tl.constexpr):
    block = desc.load([0, 0])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, block)


@triton.jit
def _device_descriptor(x, out, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [M, N])
    target.store([0, 0], source.load([0, 0]) * 2)


def case_tensor_descriptors_load_and_store():
    from triton.tools.tensor_descriptor import TensorDescriptor

    x, out = torch.randn(6, 16), torch.empty(8, 16)
    _descriptor[(1,)](TensorDescriptor.from_tensor(x, [8, 16]), out, M=8, N=16)
    assert torch.equal(out[:6], x)
    assert not out[6:].any()
    twice = torch.zeros(6, 16)
    observer.begin()
    _device_descriptor[(1,)](x, twice, 6, 16, M=8, N=16)
    assert observer.end().oob_count == 0
    assert torch.equal(twice, x * 2)


def case_a_kernel_is_warmed_up_and_asked_for_its_registers():
    x, out = torch.randn(16), torch.empty(16)
    given = (x, out, 0.5, True, None, 16, 16, _relu, tl.float32)
    kernel = _arguments.warmup(*given, num_warps=4, grid=(1,))
    kernel._init_handles()
    assert 132 * 65536 // (kernel.n_regs * 32 * 4) > 0
    assert kernel.metadata.shared > 0
    kernel[(1, 1, 1)](*given)
    assert torch.equal(out, torch.relu(x * 0.5))


class _Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4, device="cuda"))
        self.register_buffer("steps", torch.arange(4, device="cuda:0"))

    def forward(self, x):
        assert x.is_cuda
        assert x.device == self.weight.device
        assert x.device.type == "cuda"
        return torch.empty(x.shape, device=x.device, dtype=x.dtype).copy_(x @ self.weight)


def case_torch_looks_like_a_gpu_box():
    layer = _Layer().to("cuda").cuda().to(device=torch.device("cuda"), dtype=torch.float32)
    with torch.no_grad():
        layer(torch.randn(2, 4).to("cuda", torch.float32))
    x = torch.zeros(3, device=torch.device("cuda", 0))
    assert torch.zeros_like(x).device == torch.device("cuda", 0)
    assert x.new_empty((2,), device="cuda").get_device() == 0
    assert torch.arange(3, device=x.device).device == x.device
    assert torch.tensor([1.0], device="cuda").to(x.device).is_cuda
    assert x.type() == "torch.cuda.FloatTensor"
    assert x.pin_memory().is_cuda
    assert torch.cuda.is_available()
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132
    with torch.cuda.device(x.device), torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().synchronize()
    start = torch.cuda.Event(enable_timing=True)
    start.record()
    assert start.elapsed_time(torch.cuda.Event()) > 0
    assert torch._C._cuda_getCurrentRawStream(0) == 0
    assert torch._C._dynamo.guards._empty_strided_cuda((2, 2), (2, 1), torch.float32).is_cuda
    assert triton.runtime.driver.active.get_current_target().arch == 90
    assert triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 132
    torch.set_default_device("cuda")
    assert torch.ones(2).device == torch.get_default_device()
    torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.ones(2).is_cuda


def case_autocast_for_cuda_casts():
    a = torch.randn(4, 4)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    with torch.autocast(device_type="cuda"):
        assert (a @ a).dtype == torch.float16


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        assert grad.is_cuda
        assert grad.device.type == "cuda"
        return grad * 2


def case_the_backward_pass_sees_the_same_world():
    x = torch.randn(4, requires_grad=True)
    _Double.apply(x).sum().backward()
    assert torch.equal(x.grad, torch.full((4,), 2.0))


def case_cuda_graphs_and_inductor_are_unsupported():
    def graph():
        torch.cuda.CUDAGraph()

    def inductor():
        from torch._inductor.runtime.hints import DeviceProperties
        from torch._inductor.runtime.triton_heuristics import pointwise

        device = DeviceProperties("cuda", index=0, multi_processor_count=132, cc=90)
        meta = {"device": device, "signature": {"x": "*fp32", "XBLOCK": "constexpr"}, "configs": [{}]}

        @pointwise(size_hints={"x": 16}, triton_meta=meta, filename=__file__, inductor_meta={})
        @triton.jit
        def kernel(x, XBLOCK: tl.constexpr):
            pass

    for attempt in (graph, inductor):
        try:
            attempt()
        except Unsupported as error:
            assert is_unsupported(error)
        else:
            raise AssertionError("it was supported")


@triton.jit
def _largest(x, y, XBLOCK: tl.constexpr):
    i = tl.arange(0, XBLOCK)
    tl.store(y + i, tl.maximum(tl.load(x + i), 0.0))


def case_what_inductor_writes_around_its_kernels_runs():
    torch.set_default_device(None)
    allocate = torch._C._dynamo.guards._empty_strided_cuda
    x = torch.randn(8, device="cuda")
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        y = allocate((8,), (1,), torch.float32)
        assert y.is_cuda
        assert not host.is_host(y)
        assert torch.empty_strided((2, 3), (1, 2), device="cuda").stride() == (1, 2)
        assert not host.is_host(torch.empty_strided((2, 3), (1, 2), device="cuda"))
        _largest[(1,)](x, y, XBLOCK=8)  # refuses memory of the host
    assert torch.equal(y, x.clamp(min=0))


def case_seeds_seed():
    torch.manual_seed(7)
    first = torch.randn(3, device="cuda")
    torch.cuda.manual_seed_all(7)
    assert torch.equal(first, torch.randn(3, device="cuda"))


@triton.jit
def _own_num_stages(x, out, n, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    for at in tl.range(0, n, BLOCK, num_stages=num_stages):
        lanes = at + tl.arange(0, BLOCK)
        tl.store(out + lanes, tl.load(x + lanes) * num_stages)


def case_a_compiled_kernel_may_have_a_parameter_called_num_stages():
    x, out = torch.randn(32), torch.empty(32)
    compiled = _own_num_stages.warmup(x, out, 32, BLOCK=16, num_stages=3, grid=(1,))
    assert compiled.name == "_own_num_stages"
    compiled[(1, 1, 1)](x, out, 32, 16, 3)
    torch.testing.assert_close(out, x * 3)


def case_the_accelerator_module_agrees_with_cuda():
    accelerator = torch.accelerator
    with accelerator.device_index(0):
        assert accelerator.current_device_index() == 0
    accelerator.set_device_index(0)
    accelerator.synchronize()
    accelerator.empty_cache()
    assert accelerator.is_available()
    assert accelerator.device_count() == 1
    assert accelerator.current_stream() is torch.cuda.current_stream()
    assert accelerator.memory_allocated() == 0


def case_clocks_are_told_without_a_program():
    assert triton.testing.nvsmi(["clocks.max.sm"]) == [1980]


@triton.jit
def _is_float(kind):
    return kind.value.is_floating()


@triton.jit
def _values_of_constants(out, KIND: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N.value)
    tl.store(out + at, (1 if _is_float(KIND) else 2) + at * 0)


def case_a_constant_has_a_value():
    for kind, expected in ((tl.float32, 1), (tl.int32, 2)):
        out = torch.empty(8, dtype=torch.int32)
        _values_of_constants[(1,)](out, KIND=kind, N=8)
        assert out.tolist() == [expected] * 8


def case_a_fourth_dimension_of_the_grid_is_ignored_as_on_a_gpu():
    out = torch.empty(8, dtype=torch.int32)
    observer.begin()
    _values_of_constants[(1, 1, 1, 5)](out, KIND=tl.float32, N=8)
    assert observer.end().launches[0].programs == 1


@triton.jit
def _waits_for_a_later_one(flags, out):
    number = tl.program_id(0)
    if number == 0:
        while tl.atomic_cas(flags, 1, 1) != 1:
            pass
    else:
        tl.atomic_xchg(flags, 1)
    tl.store(out + number, number)


@triton.jit
def _counts_for_long(x, out, n):
    at = 0
    while at < n:
        tl.store(out + tl.program_id(0), tl.load(x) + at)
        at += 1


def case_a_long_loop_with_plain_loads_waits_for_nobody():
    out = torch.zeros(2)
    _counts_for_long[(2,)](torch.zeros(1), out, (1 << 16) + 9)
    assert out.tolist() == [float((1 << 16) + 8)] * 2


def case_waiting_for_a_later_program_is_unsupported_and_not_endless():
    error = raised_by(lambda: _waits_for_a_later_one[(2,)](torch.zeros(1, dtype=torch.int32), torch.zeros(2)))
    assert "waiting" in str(is_unsupported(error))
