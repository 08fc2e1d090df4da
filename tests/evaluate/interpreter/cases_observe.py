"""What is seen and steered: launches, ablation, autotune, bounds, poison."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import observer


@triton.jit
def _copy(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def _twice(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def case_launches_are_recorded_with_grid_and_file():
    x, out = torch.randn(100), torch.empty(100)
    observer.begin()
    _copy[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100, BLOCK=32)
    _twice[(4, 1)](x, out, 100, BLOCK=32)
    seen = observer.end()
    assert [(launch.kernel, launch.grid, launch.programs) for launch in seen.launches] == [
        ("_copy", (4, 1, 1), 4),
        ("_twice", (4, 1, 1), 4),
    ]
    assert {launch.file for launch in seen.launches} == {__file__}
    assert torch.equal(out, x * 2)


def case_a_suppressed_kernel_is_recorded_and_does_nothing():
    x = torch.randn(100)
    for given, expected in (
        ({"suppress": frozenset({"_twice"})}, x),
        ({"suppress": frozenset({"_copy"})}, x * 2),
        ({"suppress_all": True}, torch.full((100,), float("nan"))),
    ):
        observer.begin(**given)
        out = torch.empty(100)
        _copy[(4,)](x, out, 100, BLOCK=32)
        _twice[(4,)](x, out, 100, BLOCK=32)
        if given.get("suppress") == frozenset({"_twice"}):
            assert [launch.suppressed for launch in observer.seen.launches] == [False, True]
        assert len(observer.end().launches) == 2
        assert torch.equal(out.nan_to_num(9.0), expected.nan_to_num(9.0)), given


def case_uninitialised_memory_is_poisoned_only_while_watched():
    makers = {
        "empty": lambda: torch.empty(8, 8),
        "empty_like": lambda: torch.empty_like(torch.zeros(8, 8)),
        "new_empty": lambda: torch.zeros(1).new_empty((8, 8)),
        "empty_strided": lambda: torch.empty_strided((8, 8), (8, 1)),
        "cuda": lambda: torch.empty(8, 8, device="cuda", dtype=torch.bfloat16),
        "constructor": lambda: torch.Tensor(8, 8),
    }
    for name, make in makers.items():
        observer.begin()
        assert make().isnan().all(), name
        assert (torch.empty(4, dtype=torch.int32) == 2**31 - 1).all()
        observer.end()
        assert not torch.are_deterministic_algorithms_enabled()
    observer.begin(poison=False)
    assert not torch.are_deterministic_algorithms_enabled()
    observer.end()


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 16}),
        triton.Config({"BLOCK": 32}, num_warps=8),
        triton.Config({"BLOCK": 64}),
    ],
    key=["n"],
)
@triton.jit
def _tuned(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def case_the_named_config_runs_and_nothing_else():
    x = torch.randn(100)
    for config, block in ((None, 16), (0, 16), (1, 32), (2, 64), (4, 32)):
        observer.begin(config=config)
        out = torch.empty(100)
        _tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, out, 100)
        seen = observer.end()
        assert torch.equal(out, x)
        assert seen.autotuned == {"_tuned": 3}
        (launch,) = seen.launches
        assert launch.programs == triton.cdiv(100, block)
        assert launch.config == (config or 0) % 3
        assert seen.signatures[launch.signature]["constexprs"]["BLOCK"] == block
        assert seen.signatures[launch.signature]["num_warps"] == (8 if block == 32 else 4)


def case_a_config_that_does_less_leaves_poison():
    x = torch.randn(100)
    left = {}
    for config in (0, 2):
        observer.begin(config=config)
        out = torch.empty(100)
        _tuned[(2,)](x, out, 100)
        observer.end()
        left[config] = int(out.isnan().sum())
    assert left == {0: 68, 2: 0}


_hooked: list[str] = []


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 16}, pre_hook=lambda args: _hooked.append(f"pre {args['BLOCK']}")),
        triton.Config({"BLOCK": 64}),
        triton.Config({"BLOCK": 128}),
    ],
    key=["n"],
    reset_to_zero=["out"],
    prune_configs_by={
        "early_config_prune": lambda configs, named, **kw: [c for c in configs if c.kwargs["BLOCK"] < 128]
    },
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def _accumulate(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.atomic_add(out + at, tl.load(x + at))
    else:
        tl.atomic_add(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def case_autotune_hooks_pruning_and_heuristics_are_honoured():
    x = torch.randn(64)
    observer.begin(config=0)
    out = torch.empty(64)
    _accumulate[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, out, 64)
    seen = observer.end()
    assert torch.equal(out, x)
    assert seen.autotuned == {"_accumulate": 2}
    assert _hooked == ["pre 16"]
    assert seen.signatures[0]["constexprs"]["EVEN"] is True
    # A GPU resets only when it tunes, at the first call for a key.
    observer.begin(config=1)
    _accumulate[lambda meta: (triton.cdiv(64, meta["BLOCK"]),)](x, out, 64)
    observer.end()
    assert torch.equal(out, x * 2)


def case_do_bench_runs_once_and_returns_a_number():
    calls = []
    assert triton.testing.do_bench(lambda: calls.append(1)) == 1.0
    assert triton.testing.do_bench(lambda: calls.append(1), quantiles=[0.5, 0.2, 0.8]) == [1.0] * 3
    assert len(calls) == 2


@triton.jit
def _unmasked(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at), mask=at < n)


@triton.jit
def _wild_store(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n))


@triton.jit
def _wild_atomic(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at - 4, tl.load(x + at, mask=at < n))


@triton.jit
def _wild_cas(lock, BLOCK: tl.constexpr):
    tl.atomic_cas(lock + 100, 0, 1)


@triton.jit
def _block_pointer(x, out, n, BLOCK: tl.constexpr, CHECK: tl.constexpr):
    source = tl.make_block_ptr(x, (n,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(out, (n,), (1,), (0,), (BLOCK,), (0,))
    if CHECK:
        tl.store(target, tl.load(source, boundary_check=(0,)), boundary_check=(0,))
    else:
        tl.store(target, tl.load(source))


def case_lanes_out_of_bounds_are_counted_and_harmless():
    x = torch.randn(100)
    for kernel, kind, lanes, beyond in (
        (_unmasked, "load", 28, 0),
        (_wild_store, "store", 28, 0),
        (_wild_atomic, "atomic", 4, -16),
    ):
        out = torch.zeros(100)
        observer.begin()
        kernel[(2,)](x, out, 100, BLOCK=64)
        seen = observer.end()
        assert seen.oob_count >= 1
        bad = next(event for event in seen.oob if event.kind == kind)
        assert bad.kernel == kernel.__name__
        assert bad.lanes == lanes
        assert bad.of == 64
        assert bad.beyond == beyond
        if kernel is not _wild_atomic:
            assert torch.equal(out, x)
            assert bad.program == (1, 0, 0)
            assert bad.argument == ("x" if kind == "load" else "out")


def case_block_pointers_and_compare_and_swap_are_checked():
    x, out = torch.randn(100), torch.zeros(100)
    observer.begin()
    _block_pointer[(1,)](x, out, 100, BLOCK=128, CHECK=True)
    assert observer.end().oob_count == 0
    assert torch.equal(out, x)
    observer.begin()
    _block_pointer[(1,)](x, out, 100, BLOCK=128, CHECK=False)
    seen = observer.end()
    assert [(event.kind, event.lanes) for event in seen.oob] == [("load", 28), ("store", 28)]
    observer.begin()
    _wild_cas[(1,)](torch.zeros(1, dtype=torch.int32), BLOCK=1)
    assert [event.kind for event in observer.end().oob] == ["atomic"]


def case_running_from_one_tensor_into_another_is_out_of_bounds():
    whole = torch.randn(200)
    x, y = torch.from_numpy(whole.numpy()[:100].copy()).cuda(), torch.zeros(100)
    observer.begin()
    # Give the kernel the distance to y: the address is inside y's storage, the pointer was made from x.
    _offset_load[(1,)](x, y, (y.data_ptr() - x.data_ptr()) // 4, BLOCK=16)
    seen = observer.end()
    assert seen.oob[0].lanes == 16


@triton.jit
def _offset_load(x, y, distance, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + distance + at))


@triton.jit
def _table(addresses, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pointer = tl.load(addresses + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(pointer + at))


def case_pointers_from_a_table_reach_live_tensors():
    parts = [torch.randn(16) for _ in range(3)]
    addresses, out = torch.tensor([part.data_ptr() for part in parts]), torch.empty(48)
    observer.begin()
    _table[(3,)](addresses, out, BLOCK=16)
    assert observer.end().oob_count == 0
    assert torch.equal(out, torch.cat(parts))


def case_only_the_first_events_are_kept():
    x, out = torch.randn(4), torch.zeros(4)
    observer.begin()
    _unmasked[(20,)](x, out, 4, BLOCK=16)
    seen = observer.end()
    assert seen.oob_count == 20
    assert len(seen.oob) == 5


@triton.jit
def _atomics(x, sums, biggest, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a = tl.load(x + at)
    tl.atomic_add(sums + at % 2, a)
    tl.atomic_max(biggest, tl.max(a.to(tl.float32), 0))


def case_atomics_add_in_every_float_type():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randint(-4, 5, (16,)).to(dtype)
        sums, biggest = torch.zeros(2, dtype=dtype), torch.full((1,), -100.0)
        _atomics[(1,)](x, sums, biggest, BLOCK=16)
        assert torch.equal(sums, torch.stack([x[0::2].sum(), x[1::2].sum()])), dtype
        assert biggest.item() == x.max().item()
