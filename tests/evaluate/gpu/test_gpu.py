"""The GPU tiers on a real GPU: what is right is timed, what is wrong or false only there is found, and nothing is left.

Needs no more than the evaluator itself and pytest, so that it runs on a bare machine with a GPU:

    PYTHONPATH=src python -m pytest --noconftest -c /dev/null --rootdir . tests/evaluate/gpu/test_gpu.py
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.sandbox.gpu_vendors import visible_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus(), reason="needs an NVIDIA GPU, and there is none here"),
]

REFERENCE = """
import torch
import torch.nn as nn

ROWS = 4096

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(ROWS, 1024)]

def get_init_inputs():
    return []
"""
HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(out_ptr + at, tl.maximum(x, 0.0) * 2.0, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
"""
HONEST = """
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
LARGE = "x.numel() > 1 << 20"
"""What no interpreter is given, so that only a GPU sees what happens then."""
BAD = {
    "leaves the end of a large tensor alone": (
        """
        out = torch.empty_like(x)
        kernel[(min(triton.cdiv(x.numel(), 1024), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
""",
        {"incorrect"},
    ),
    "has torch compute what is large": (
        f"        if {LARGE}:\n            return torch.relu(x) * 2.0\n" + HONEST,
        {"hack"},
    ),
    "keeps the first result for what is large": (
        f"""
        if {LARGE}:
            kept = getattr(self, "kept", None)
            if kept is not None:
                return kept
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        self.kept = out
        return out
""",
        {"hack", "incorrect"},
    ),
    "works on a stream of its own and does not wait": (
        f"""
        out = torch.empty_like(x)
        if not ({LARGE}):
            kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
            return out
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(20_000_000)
            kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
""",
        {"hack", "incorrect"},
    ),
}
HANGS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, count_ptr, n, again, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    turns = again
    while turns > 0:
        turns = turns + tl.atomic_add(count_ptr, 0)
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(out_ptr + at, tl.maximum(x, 0.0) * 2.0, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        again = 2 * int(x.numel() > 1 << 20)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, count, x.numel(), again, BLOCK=1024)
        return out
"""
STRAYS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, far, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.store(out_ptr + at + far.to(tl.int64) * 1073741824, tl.maximum(x, 0.0) * 2.0, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        far = 4096 * int(x.numel() > 1 << 20)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), far, BLOCK=1024)
        return out
"""
_MODULE = """
    def __init__(self):
        super().__init__()
        self.ready = None
"""
_KERNEL, _CLASS = HEAD.split("class ModelNew")
LAUNCHES = {
    "a captured graph": _KERNEL
    + f"""
class ModelNew(nn.Module):
{_MODULE}
    def launch(self):
        kernel[(triton.cdiv(self.x.numel(), 1024),)](self.x, self.out, self.x.numel(), BLOCK=1024)

    def forward(self, x):
        if self.ready is None:
            self.x, self.out = x.clone(), torch.empty_like(x)
            self.launch()
            torch.cuda.synchronize()
            self.ready = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.ready):
                self.launch()
        self.x.copy_(x)
        self.ready.replay()
        return self.out.clone()
""",
    "a compiled kernel": _KERNEL
    + f"""
class ModelNew(nn.Module):
{_MODULE}
    def forward(self, x):
        out, grid = torch.empty_like(x), (triton.cdiv(x.numel(), 1024), 1, 1)
        if self.ready is None:
            self.ready = kernel.warmup(x, out, x.numel(), BLOCK=1024, grid=grid)
        self.ready[grid](x, out, x.numel(), 1024)
        return out
""",
    "an autotuner": _KERNEL.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': n}, num_warps=4) for n in (512, 1024)], key=['n'])\n@triton.jit",
    )
    + """
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
""",
    "the backward pass of an autograd function": _KERNEL
    + """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out

class ModelNew(nn.Module):
    def forward(self, x):
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            total = Twice.apply(leaf)
        return torch.autograd.grad(total, leaf)[0]
""",
}
PATCHES_TORCH = REFERENCE.replace("class Model", "torch.cdist = None\n\nclass Model")


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cuda", timeout=12, targets=()), workers=2, per_gpu=1) as warm:
        yield warm


def with_options(evaluator: Evaluator, **options: Any) -> Evaluator:
    """The same processes, with other options."""
    other = copy.copy(evaluator)
    other.options = dataclasses.replace(evaluator.options, **options)
    return other


def judged(evaluator: Evaluator, code: str, reference: str = REFERENCE) -> Verdict:
    return asyncio.run(evaluator.evaluate(Pair("x", reference, code)))


def assert_the_next_one_is_well(evaluator: Evaluator) -> None:
    verdict = judged(evaluator, HEAD + HONEST)
    assert (verdict.status, verdict.tier) == ("PASSED", "gpu_timed"), verdict.error


@pytest.mark.parametrize("how", LAUNCHES)
def test_a_launch_is_recorded_and_replayed_however_python_made_it(evaluator: Evaluator, how: str) -> None:
    verdict = judged(evaluator, LAUNCHES[how])
    assert (verdict.verdict, verdict.tier) == ("correct", "gpu_timed"), verdict.error
    checks = {check.name: (check.result, check.detail) for check in verdict.checks}
    assert checks["gpu:replay"] == ("pass", "bit for bit")
    assert verdict.perf is not None
    assert verdict.perf.program_us is not None


def test_an_honest_kernel_is_right_timed_and_described(evaluator: Evaluator) -> None:
    verdict = judged(evaluator, HEAD + HONEST)
    assert (verdict.verdict, verdict.tier) == ("correct", "gpu_timed"), verdict.error
    perf = verdict.perf
    assert perf is not None
    assert perf.speedup_lo <= perf.speedup <= perf.speedup_hi
    assert perf.baselines["eager"] > 1.2 * perf.median_us, "two operations of torch's against one kernel"
    assert perf.program_us == pytest.approx(perf.own_us, rel=0.05)
    assert set(perf.baselines) == {"eager", "compile"}
    assert perf.compile_s is not None
    assert perf.compile_s > 0
    assert perf.clock_mhz is not None
    assert 200 < perf.clock_mhz < 4000
    assert perf.roofline_frac is not None
    assert 0.05 < perf.roofline_frac < 1.2
    assert perf.min_us is not None
    assert perf.max_us is not None
    assert perf.min_us <= perf.median_us <= perf.max_us
    checks = {check.name: check.result for check in verdict.checks}
    assert {
        checks[f"gpu:{name}"] for name in ("graph_replay", "coverage", "physics", "digest", "seed_0")
    } == {"pass"}
    assert verdict.grade.coverage is not None
    assert verdict.grade.coverage > 0.5


@pytest.mark.parametrize("what", BAD)
def test_what_is_bad_only_at_full_size_is_found_there(evaluator: Evaluator, what: str) -> None:
    code, labels = BAD[what]
    verdict = judged(evaluator, HEAD + code)
    assert verdict.verdict in labels, (verdict.status, verdict.error)
    assert verdict.perf is None
    assert_the_next_one_is_well(evaluator)


def test_a_fault_on_the_gpu_costs_one_candidate(evaluator: Evaluator) -> None:
    verdict = judged(evaluator, STRAYS)
    assert verdict.status == "RUNTIME_ERROR", verdict.error
    assert_the_next_one_is_well(evaluator)


def test_a_kernel_that_never_ends_costs_one_time_out(evaluator: Evaluator) -> None:
    verdict = judged(evaluator, HANGS)
    assert verdict.status == "TIMEOUT", verdict.error
    assert_the_next_one_is_well(evaluator)


def test_work_that_torch_does_shows_in_the_time_without_launches(evaluator: Evaluator) -> None:
    code = HEAD + HONEST.replace("return out", "return torch.clamp(out, max=1e9)")
    verdict = judged(evaluator, code)
    assert verdict.grade.coverage is not None
    assert 0.2 < verdict.grade.coverage < 0.8, verdict.grade


def test_a_judge_serves_again_unless_a_reference_has_changed_something(evaluator: Evaluator) -> None:
    alone = with_options(evaluator, baselines=())  # who compiles a baseline does not serve again
    judged(alone, HEAD + HONEST)
    assert judged(alone, HEAD + HONEST).cost["gpu"]["new_judge"] is False
    judged(alone, HEAD + HONEST, PATCHES_TORCH)
    assert judged(alone, HEAD + HONEST).cost["gpu"]["new_judge"] is True


def test_an_audit_records_what_the_driver_saw(evaluator: Evaluator) -> None:
    verdict = judged(with_options(evaluator, audit=True, baselines=()), HEAD + HONEST)
    assert verdict.verdict == "correct", verdict.error
    checks = {check.name: check for check in verdict.checks}
    assert checks["gpu:profiler"].result == "pass", checks["gpu:profiler"].detail
    assert "kernel" in checks["gpu:profiler"].detail
    assert {"gpu:drift", "gpu:mode:grad", "gpu:noncontiguous"} <= set(checks)


def test_baselines_of_every_kind_can_be_had(evaluator: Evaluator) -> None:
    both = with_options(evaluator, baselines=("compile", "compile_max"), timeout=60)
    perf = judged(both, HEAD + HONEST).perf
    assert perf is not None
    assert set(perf.baselines) == {"eager", "compile", "compile_max"}, perf.notes


def memory_of_the_gpu() -> int:
    asked = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0]) << 20


def filling(share: float) -> str:
    """A reference whose inputs and outputs are such a share of the GPU's memory."""
    rows = int(share * memory_of_the_gpu() / 2 / 4096)
    return REFERENCE.replace("ROWS = 4096", f"ROWS = {rows}")


def test_a_task_that_is_an_eleventh_of_the_memory_is_judged_with_the_float64_oracle_and_timed(
    evaluator: Evaluator,
) -> None:
    verdict = judged(with_options(evaluator, timeout=60), HEAD + HONEST, filling(1 / 11))
    assert (verdict.verdict, verdict.tier) == ("correct", "gpu_timed"), verdict.error
    assert "oracle" not in verdict.task
    checks = {check.name: check for check in verdict.checks}
    named = (
        "seed_2",
        "distribution:zero_mean",
        "overwrite_first",
        "overwrite_one",
        "static_buffer",
        "digest",
    )
    assert {checks[f"gpu:{name}"].result for name in (*named, "graph_replay")} == {"pass"}
    used = verdict.cost["gpu"]
    assert used["judge_gb"] + used["arenas_gb"] + used["candidate_gb"] < 11 * used["task_gb"]
    assert perf_is_kept(verdict)


def perf_is_kept(verdict: Verdict) -> bool:
    return verdict.perf is not None and set(verdict.perf.baselines) == {"eager", "compile"}


@pytest.mark.parametrize("what", [name for name in BAD if "stream" not in name])
def test_what_is_bad_is_found_where_a_task_fills_much_of_the_memory(evaluator: Evaluator, what: str) -> None:
    code, labels = BAD[what]
    verdict = judged(with_options(evaluator, timeout=60), HEAD + code, filling(1 / 11))
    assert verdict.verdict in labels, (verdict.status, verdict.error)


def test_who_returns_twice_the_bytes_of_a_large_task_is_wrong_and_not_out_of_memory(
    evaluator: Evaluator,
) -> None:
    wide = HONEST.replace("return out", f"return out.double() if {LARGE} else out")
    verdict = judged(with_options(evaluator, timeout=60), HEAD + wide, filling(1 / 40))
    assert verdict.status == "INCORRECT_SHAPE", (verdict.status, verdict.error)


def test_a_task_too_large_for_the_gpu_is_inconclusive(evaluator: Evaluator) -> None:
    verdict = judged(with_options(evaluator, timeout=60), HEAD + HONEST, filling(0.9))
    assert verdict.status == "UNSUPPORTED", (verdict.status, verdict.error)
    assert "does not fit" in verdict.error
    assert_the_next_one_is_well(evaluator)


WAITS = HONEST.replace("return out", "torch.cuda.synchronize()\n        return out")
READS = HONEST.replace("return out", "assert out[0, 0].item() >= 0\n        return out")
WAITING_REFERENCE = REFERENCE.replace(
    "return torch.relu(x) * 2.0", "assert x[0, 0].item() < 100\n        return torch.relu(x) * 2.0"
)
STOPS_WHEN_TIMED = """
        self.calls = getattr(self, "calls", 0) + int(x.numel() > 1 << 20)
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        if self.calls > 60:
            torch.cuda._sleep(1 << 62)
        return out
"""


@pytest.mark.parametrize(
    ("reference", "code", "side"),
    [
        (REFERENCE, WAITS, "candidate"),
        (REFERENCE, READS, "candidate"),
        (WAITING_REFERENCE, HONEST, "reference"),
    ],
)
def test_who_waits_for_the_gpu_is_correct_and_timed_as_a_caller_sees_it(
    evaluator: Evaluator, reference: str, code: str, side: str
) -> None:
    verdict = judged(evaluator, HEAD + code, reference)
    assert (verdict.verdict, verdict.tier) == ("correct", "gpu_timed"), verdict.error
    assert verdict.perf is not None
    assert (verdict.perf.regime, verdict.perf.device_us) == ("latency", None)
    assert any(f"the {side} waits" in note for note in verdict.perf.notes)


def test_who_does_not_end_while_it_is_timed_loses_the_time_and_not_the_verdict(evaluator: Evaluator) -> None:
    verdict = judged(evaluator, HEAD + STOPS_WHEN_TIMED)
    assert (verdict.verdict, verdict.tier, verdict.perf) == ("correct", "gpu", None), verdict.error
    (check,) = [check for check in verdict.checks if check.name == "gpu:timing"]
    assert check.result == "skip"
    assert_the_next_one_is_well(evaluator)


OFFENDERS = {"waits": HEAD + WAITS, "never ends": HANGS}


@pytest.mark.parametrize("what", OFFENDERS)
def test_neighbours_of_an_offender_get_what_they_get_alone(what: str) -> None:
    async def together(evaluator: Evaluator) -> list[Verdict]:
        honest = [HEAD + HONEST + f"# {number}\n" for number in range(5)]
        pairs = [Pair(str(n), REFERENCE, code) for n, code in enumerate([OFFENDERS[what], *honest])]
        return await asyncio.gather(*(evaluator.evaluate(pair) for pair in pairs))

    with Evaluator(Options(device="cuda", targets=(), baselines=()), workers=6) as evaluator:
        offender, *honest = asyncio.run(together(evaluator))
    told = [(verdict.verdict, verdict.tier, verdict.error) for verdict in honest]
    assert told == [("correct", "gpu_timed", "")] * 5
    assert offender.status == ("TIMEOUT" if what == "never ends" else "PASSED"), offender.error
