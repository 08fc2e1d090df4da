"""Programs that run together: what makes them part, and that nobody can tell from outside."""

from __future__ import annotations

import contextlib
import gc
import io
import tracemalloc

import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import observer, programs
from kernelmill.evaluate.interpreter.running import Programs
from tests.evaluate.interpreter.raised import raised_by


class _Watched:
    """Counts how often the kernel's function runs, and with how many programs."""

    def __enter__(self):
        self.sizes = []
        plain = Programs._enter

        def enter(this, numbers, together):
            self.sizes.append(len(numbers))
            plain(this, numbers, together)

        self._plain, Programs._enter = plain, enter
        return self

    def __exit__(self, *error):
        Programs._enter = self._plain


@triton.jit
def _double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def case_programs_that_do_the_same_run_once():
    x = torch.randn(1000)
    out = torch.empty_like(x)
    with _Watched() as watched:
        _double[(63,)](x, out, 1000, BLOCK=16)
    assert watched.sizes == [63]
    assert torch.equal(out, x * 2)


def case_a_batch_is_as_large_as_its_blocks_allow():
    block = programs.ELEMENTS // 4
    x = torch.randn(50 * block)
    out = torch.empty_like(x)
    with _Watched() as watched:
        _double[(50,)](x, out, 50 * block, BLOCK=block)
    assert watched.sizes[0] == 50, "the first try is with all"
    assert watched.sizes[1] == 4
    assert max(watched.sizes[2:]) <= programs.MOST_ELEMENTS // block
    assert sum(watched.sizes[1:]) == 50, "no batch was repeated"
    assert torch.equal(out, x * 2)


@triton.jit
def _rows_of_any_length(x, lengths, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for at in range(tl.load(lengths + row)):
        total += tl.sum(tl.load(x + row * BLOCK + at))
    tl.store(out + row, total)


def case_programs_part_by_the_length_of_their_loop():
    x, out = torch.randn(12, 8), torch.empty(12)
    lengths = torch.tensor([3, 0, 8] * 4, dtype=torch.int32)
    with _Watched() as watched:
        _rows_of_any_length[(12,)](x, lengths, out, BLOCK=8)
    assert sorted(watched.sizes) == [4, 4, 4, 12]
    expected = torch.stack([row[:length].sum() for row, length in zip(x, lengths.tolist(), strict=True)])
    torch.testing.assert_close(out, expected)


@triton.jit
def _ticket(counter, out):
    tl.store(out + tl.program_id(0), tl.atomic_add(counter, 1))


@triton.jit
def _sums(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + at % 3, tl.load(x + at))


def case_atomics_run_together_unless_their_result_is_used():
    counter, out = torch.zeros(1, dtype=torch.int32), torch.empty(9, dtype=torch.int32)
    with _Watched() as watched:
        _ticket[(9,)](counter, out)
    assert watched.sizes == [9, *[1] * 9]
    assert out.tolist() == list(range(9))
    x, sums = torch.randn(64).to(torch.bfloat16), torch.zeros(3, dtype=torch.bfloat16)
    with _Watched() as watched:
        _sums[(8,)](x, sums, BLOCK=8)
    assert watched.sizes == [8]
    expected = torch.zeros(3, dtype=torch.bfloat16)
    for at, value in enumerate(x):
        expected[at % 3] += value  # rounds after each, in the order of the programs
    assert torch.equal(sums, expected)


@triton.jit
def _waits(flag, out):
    number = tl.program_id(0)
    if number == 0:
        tl.store(flag, 1)
    while tl.load(flag) == 0:
        pass
    tl.store(out + number, number)


def case_a_program_that_waits_for_another_is_noticed():
    flag, out = torch.zeros(1, dtype=torch.int32), torch.full((4,), -1, dtype=torch.int32)
    _waits[(4,)](flag, out)
    assert out.tolist() == [0, 1, 2, 3]


@triton.jit
def _says(x, out, n):
    number = tl.program_id(0)
    tl.device_print("program", number)
    tl.store(out + number, tl.load(x + number))


def case_prints_come_program_by_program():
    x, out, said = torch.randn(3), torch.empty(3), io.StringIO()
    with contextlib.redirect_stdout(said):
        _says[(3,)](x, out, 3)
    lines = said.getvalue().splitlines()
    assert [line.split(")")[0] for line in lines] == ["(0, 0, 0", "(1, 0, 0", "(2, 0, 0"]
    assert [line.split("[")[1] for line in lines] == ["0]", "1]", "2]"]


@triton.jit
def _fails_in_the_third(out):
    number = tl.program_id(0)
    tl.store(out + number, number)
    if number >= 2:
        tl.static_assert(False, "three")


def case_an_error_leaves_what_the_programs_before_it_did():
    out = torch.full((5,), -1, dtype=torch.int32)
    error = raised_by(lambda: _fails_in_the_third[(5,)](out))
    assert isinstance(error, AssertionError)
    assert str(error) == "three"
    assert out.tolist() == [0, 1, 2, -1, -1]


@triton.jit
def _past_the_end(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if tl.program_id(0) % 2 == 0:
        tl.store(out + at, tl.load(x + at))
    else:
        tl.store(out + at, tl.load(x + at) * 2, mask=at < n)


def case_accesses_out_of_bounds_are_told_in_the_order_of_the_programs():
    seen = {}
    for order in ("forward", "reverse"):
        observer.begin(order=order)
        _past_the_end[(8,)](torch.randn(40), torch.empty(40), 40, BLOCK=8)
        seen[order] = observer.end()
    told = [(event.program[0], event.kind, event.lanes) for event in seen["forward"].oob]
    # Of the programs 5 to 7, which are all past the end, those with an even number do not mask their stores.
    assert told == [(5, "load", 8), (6, "load", 8), (6, "store", 8), (7, "load", 8)]
    assert seen["forward"].oob_count == seen["reverse"].oob_count == 4
    assert [event.program[0] for event in seen["reverse"].oob] == [7, 6, 6, 5]


@triton.jit
def _by_table(table, out, BLOCK: tl.constexpr):
    number = tl.program_id(0)
    source = tl.load(table + number).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + number * BLOCK + at, tl.load(source + at))


def case_a_table_of_addresses_parts_the_programs_and_keeps_their_bounds():
    first, second = torch.randn(8), torch.randn(8)
    table = torch.tensor([first.data_ptr(), second.data_ptr(), first.data_ptr()])
    out = torch.empty(3, 8)
    observer.begin()
    _by_table[(3,)](table, out, BLOCK=8)
    assert observer.end().oob_count == 0
    assert torch.equal(out, torch.stack([first, second, first]))
    observer.begin()
    _by_table[(3,)](table + 16, out, BLOCK=8)
    assert observer.end().oob_count == 3


@triton.jit
def _eighths(x, y, out, fp8: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at).to(fp8)
    tl.store(y + at, v.to(tl.float32))
    w = tl.reshape(v, (16, N // 16))
    product = tl.dot(w, tl.trans(w))
    tl.store(out + tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :], product)


def case_eight_bit_floats_round_as_torch_does():
    x = torch.randn(512) * torch.logspace(-6, 3, 512)
    for name, dtype in (("float8e4nv", torch.float8_e4m3fn), ("float8e5", torch.float8_e5m2)):
        y, out = torch.empty(512), torch.empty(16, 16)
        _eighths[(1,)](x, y, out, fp8=getattr(tl, name), N=512)
        most = torch.finfo(dtype).max
        expected = x.clamp(-most, most).to(dtype).to(torch.float32)
        assert torch.equal(y, expected)
        matrix = expected.reshape(16, 32)
        torch.testing.assert_close(out, matrix @ matrix.T)
    y, out = torch.empty(512), torch.empty(16, 16)
    _eighths[(1,)](x, y, out, fp8=tl.float8e4b15, N=512)
    # A format that torch lacks: three bits of mantissa, at most 1.875, nothing smaller than 2**-17.
    step = torch.exp2(torch.floor(torch.log2(x.abs())).clamp(min=-14) - 3)
    assert torch.equal(y, ((x / step).round() * step).clamp(-1.875, 1.875))
    stored, loaded = torch.empty(512, dtype=torch.float8_e4m3fn), torch.empty(512)
    _copied[(2,)](x.clamp(-448, 448), stored, loaded, N=256)
    assert torch.equal(loaded, x.clamp(-448, 448).to(torch.float8_e4m3fn).to(torch.float32))


@triton.jit
def _copied(x, stored, loaded, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(stored + at, tl.load(x + at).to(stored.dtype.element_ty))
    tl.store(loaded + at, tl.load(stored + at).to(tl.float32))


@triton.jit
def _last_one_wins(out):
    tl.store(out, tl.program_id(0))


def case_the_order_of_the_programs_is_kept_where_it_matters():
    for order, last in (("forward", 6), ("reverse", 0)):
        out = torch.full((1,), -1, dtype=torch.int32)
        observer.begin(order=order)
        _last_one_wins[(7,)](out)
        assert observer.end().race_count == 6
        assert out.item() == last


def case_launches_leave_no_memory_behind():
    x = torch.randn(100)
    out = torch.empty_like(x)
    _double[(7,)](x, out, 100, BLOCK=16)
    gc.collect()
    tracemalloc.start()
    for _ in range(100):
        _double[(7,)](x, out, 100, BLOCK=16)
    gc.collect()
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < 30_000, left
