"""Launches on side streams, and whether the caller's stream waited for them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import observer


@triton.jit
def _fill(out, BLOCK: tl.constexpr):
    tl.store(out + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1.0)


def _launch():
    _fill[(2,)](torch.empty(32, device="cuda"), BLOCK=16)


def _unjoined(call):
    observer.begin()
    call()
    return observer.end().unjoined


def _on_side(join, times=1):
    def call():
        current, side = torch.cuda.current_stream(), torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(times):
                _launch()
        join(current, side)

    return call


def _by_event(current, side):
    event = torch.cuda.Event()
    event.record(side)
    current.wait_event(event)


def _by_event_wait(current, side):
    side.record_event().wait()


def _by_event_synchronize(current, side):
    side.record_event().synchronize()


def _by_another_stream(current, side):
    other = torch.cuda.Stream()
    other.wait_stream(side)
    current.wait_stream(other)


JOINS = {
    "wait_stream": lambda current, side: current.wait_stream(side),
    "synchronize the stream": lambda current, side: side.synchronize(),
    "synchronize the device": lambda current, side: torch.cuda.synchronize(),
    "event": _by_event,
    "event.wait": _by_event_wait,
    "event.synchronize": _by_event_synchronize,
    "another stream": _by_another_stream,
}


def case_a_launch_on_a_side_stream_is_unjoined_until_it_is_waited_for():
    assert _unjoined(_on_side(lambda current, side: None, times=3)) == 3
    for name, join in JOINS.items():
        assert _unjoined(_on_side(join)) == 0, name


def case_launches_on_the_callers_stream_need_no_join():
    assert _unjoined(_launch) == 0
    for stream in (torch.cuda.default_stream(), torch.cuda.current_stream(), torch.cuda.ExternalStream(0)):
        with torch.cuda.stream(stream):
            assert _unjoined(_launch) == 0
    with torch.cuda.stream(None):
        assert _unjoined(_launch) == 0


def case_waiting_before_the_launch_joins_nothing():
    def call():
        side = torch.cuda.Stream()
        torch.cuda.current_stream().wait_stream(side)
        event = side.record_event()
        with side:
            _launch()
        event.wait()

    assert _unjoined(call) == 1


def case_waiting_the_wrong_way_joins_nothing():
    assert _unjoined(_on_side(lambda current, side: side.wait_stream(current))) == 1
    assert _unjoined(_on_side(lambda current, side: current.synchronize())) == 1


def case_a_stream_that_was_set_is_seen_and_the_next_call_begins_anew():
    def call():
        torch.cuda.set_stream(torch.cuda.Stream())
        _launch()

    assert _unjoined(call) == 1
    assert _unjoined(_launch) == 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def case_contexts_of_streams_nest():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        with torch.cuda.stream(second):
            assert torch.cuda.current_stream() == second
            assert torch._C._cuda_getCurrentRawStream(0) == second.cuda_stream
        assert torch.cuda.current_stream() == first
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert first != second
    assert torch.cuda.ExternalStream(first.cuda_stream) == first
