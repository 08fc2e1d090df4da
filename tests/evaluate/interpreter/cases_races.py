"""Races between the programs of one launch: told where the order matters, and only there."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import observer


def _seen(kernel, grid, *args, order="forward", **kwargs):
    observer.begin(order=order)
    kernel[grid](*args, **kwargs)
    return observer.end()


def _kinds(seen):
    assert (seen.race_count > 0) == bool(seen.races)
    return {race.kind for race in seen.races}


@triton.jit
def _add_without_atomics(x, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(total, tl.load(total) + tl.sum(tl.load(x + at), axis=0))


def case_a_sum_by_load_and_store_is_a_race():
    x, total = torch.randn(64), torch.zeros(1)
    seen = _seen(_add_without_atomics, (4,), x, total, BLOCK=16)
    torch.testing.assert_close(total[0], x.sum())
    assert "read after write" in _kinds(seen)
    first = seen.races[0]
    assert (first.kernel, first.argument, first.offset) == ("_add_without_atomics", "total", 0)
    assert first.programs == ((0, 0, 0), (1, 0, 0))
    assert seen.race_count >= 3


def case_one_program_alone_has_no_race():
    x, total = torch.randn(16), torch.zeros(1)
    assert not _seen(_add_without_atomics, (1,), x, total, BLOCK=16).race_count


def case_launches_one_after_another_do_not_race():
    x, total = torch.randn(16), torch.zeros(1)
    observer.begin()
    for _ in range(3):
        _add_without_atomics[(1,)](x, total, BLOCK=16)
    assert not observer.end().race_count


@triton.jit
def _each_its_number(out, n, SHIFT: tl.constexpr, SAME: tl.constexpr):
    pid = tl.program_id(0)
    at = (pid >> SHIFT) + tl.arange(0, 1)
    value = tl.full((1,), 7, tl.int32) if SAME else tl.full((1,), 0, tl.int32) + pid
    tl.store(out + at, value)


def case_two_programs_that_write_one_place_race_unless_they_agree():
    out = torch.zeros(8, dtype=torch.int32)
    assert not _seen(_each_its_number, (8,), out, 8, SHIFT=0, SAME=False).race_count
    assert not _seen(_each_its_number, (8,), out, 8, SHIFT=1, SAME=True).race_count
    seen = _seen(_each_its_number, (8,), out, 8, SHIFT=1, SAME=False)
    assert _kinds(seen) == {"write after write"}
    assert seen.race_count == 4


@triton.jit
def _shifted_tiles(x, out, n, BLOCK: tl.constexpr):
    start = tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK)
    at = start + tl.arange(0, BLOCK)
    tl.store(out + at, tl.exp(tl.load(x + at)))


def case_overlapping_tiles_that_compute_the_same_are_no_race():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.randn(50).to(dtype)
        assert not _seen(_shifted_tiles, (4,), x.float(), torch.empty_like(x), 50, BLOCK=16).race_count


@triton.jit
def _stencil(x, out, n, AHEAD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    near = tl.load(x + at + AHEAD, mask=(at + AHEAD < n) & (at + AHEAD >= 0), other=0.0)
    tl.store(out + at, tl.load(x + at, mask=at < n) + near, mask=at < n)


def case_a_stencil_races_in_place_and_not_with_an_output_of_its_own():
    for ahead, kind in ((1, "write after read"), (-1, "read after write")):
        x = torch.randn(100)
        assert not _seen(_stencil, (7,), x, torch.empty(100), 100, AHEAD=ahead, BLOCK=16).race_count
        assert kind in _kinds(_seen(_stencil, (7,), x, x, 100, AHEAD=ahead, BLOCK=16)), ahead
    x = torch.randn(100)
    assert not _seen(_stencil, (7,), x, x, 100, AHEAD=0, BLOCK=16).race_count


def case_a_race_through_two_views_of_one_memory_is_told():
    memory = torch.randn(200)
    assert _kinds(_seen(_stencil, (7,), memory[:100], memory[50:150], 100, AHEAD=0, BLOCK=16))
    assert not _seen(_stencil, (7,), memory[:100], memory[100:], 100, AHEAD=0, BLOCK=16).race_count


@triton.jit
def _add_atomically(x, total, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at), axis=0))


@triton.jit
def _init_then_add(x, total, BLOCK: tl.constexpr):
    if tl.program_id(0) == 0:
        tl.store(total, 0.0)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at), axis=0))


def case_atomics_agree_with_each_other_and_not_with_a_store():
    x = torch.randn(64)
    assert not _seen(_add_atomically, (4,), x, torch.zeros(1), BLOCK=16).race_count
    assert _kinds(_seen(_init_then_add, (4,), x, torch.empty(1), BLOCK=16)) == {"atomic after write"}


@triton.jit
def _last_one_sums(x, parts, counter, out, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(parts + pid, tl.sum(tl.load(x + pid * BLOCK + tl.arange(0, BLOCK)), axis=0))
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS)), axis=0))


@triton.jit
def _locked(x, total, lock, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + part)
    tl.atomic_xchg(lock, 0)


@triton.jit
def _chained(x, totals, flags, VOLATILE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    part = tl.sum(tl.load(x + pid * BLOCK + tl.arange(0, BLOCK)), axis=0)
    if pid > 0:
        while tl.load(flags + pid - 1, volatile=VOLATILE) == 0:
            pass
        part += tl.load(totals + pid - 1)
    tl.store(totals + pid, part)
    tl.atomic_xchg(flags + pid, 1)


def case_counters_locks_and_flags_are_no_races():
    x = torch.randn(64)
    counter, out = torch.zeros(1, dtype=torch.int32), torch.empty(1)
    seen = _seen(_last_one_sums, (4,), x, torch.empty(4), counter, out, PROGRAMS=4, BLOCK=16)
    assert not seen.race_count
    torch.testing.assert_close(out[0], x.sum())
    assert not _seen(_locked, (4,), x, torch.zeros(1), torch.zeros(1, dtype=torch.int32), BLOCK=16).race_count
    for volatile in (True, False):
        totals, flags = torch.empty(4), torch.zeros(4, dtype=torch.int32)
        assert not _seen(_chained, (4,), x, totals, flags, VOLATILE=volatile, BLOCK=16).race_count


@triton.jit
def _bytes_beside_each_other(out, wide, WIDE: tl.constexpr):
    pid = tl.program_id(0)
    tl.store(out + pid, pid.to(tl.int8))
    if WIDE and pid == 2:
        tl.store(wide, 1 << 30)


def case_places_are_told_apart_to_the_byte():
    out = torch.zeros(8, dtype=torch.int8)
    assert not _seen(_bytes_beside_each_other, (8,), out, out, WIDE=False).race_count
    wide = out.view(torch.int32)
    assert _kinds(_seen(_bytes_beside_each_other, (8,), out, wide, WIDE=True)) == {"write after write"}


@triton.jit
def _carry(x, out, carry, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(carry)
    tl.store(out + at, tl.cumsum(tl.load(x + at), axis=0) + before)
    tl.store(carry, before + tl.sum(tl.load(x + at), axis=0))


def case_the_reverse_order_shows_in_the_result():
    x = torch.randn(64)
    results = []
    for order in ("forward", "reverse"):
        out = torch.empty(64)
        assert _kinds(_seen(_carry, (4,), x, out, torch.zeros(1), BLOCK=16, order=order))
        results.append(out)
    torch.testing.assert_close(results[0], x.cumsum(0))
    assert not torch.allclose(results[0], results[1])


def case_an_unknown_order_is_refused():
    try:
        observer.begin(order="sideways")
    except ValueError as error:
        assert "sideways" in str(error)
    else:
        raise AssertionError("accepted")
    assert not observer.active
