"""CUDA streams and events without a device: which launches has the caller's stream waited for?

Work is done immediately, so nothing can be late here. But each stream counts its launches, and knows how many
launches of every other stream precede its next operation. A launch on a side stream is unjoined if neither
the caller's stream nor the host has waited for it: on a GPU its result may not be there yet. Only kernel
launches count, not what torch itself would put on the stream.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

Clock = dict[int, int]
"""How many launches of each stream are known to have finished."""


class Context(contextlib.ContextDecorator):
    """torch.cuda.device(...) and similar: a context that does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.idx = 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class _StreamState:
    """The streams of this process. The first one is the default stream."""

    def __init__(self) -> None:
        self.streams = 0
        self.host: Clock = {}
        self.launches: Clock = {}
        self.clocks: dict[int, Clock] = {}
        self.current: Any = None


_state = _StreamState()


def _merge(into: Clock, other: Clock) -> None:
    for stream, count in other.items():
        into[stream] = max(into.get(stream, 0), count)


class Stream(Context):
    priority = 0
    device = torch.device("cuda", 0)
    device_index = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stream_id = self.cuda_stream = self._number()
        self._before: list[Any] = []

    def _number(self) -> int:
        _state.streams += 1
        return _state.streams - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.stream_id == self.stream_id

    def __hash__(self) -> int:
        return hash(self.stream_id)

    def __enter__(self) -> Any:
        self._before.append(_state.current)
        _state.current = self
        return self

    def __exit__(self, *error: Any) -> None:
        _state.current = self._before.pop()

    def clock(self) -> Clock:
        known = _state.clocks.get(self.stream_id, {})
        return {**known, self.stream_id: _state.launches.get(self.stream_id, 0)}

    def wait(self, clock: Clock) -> None:
        _merge(_state.clocks.setdefault(self.stream_id, {}), clock)

    def query(self) -> bool:
        _merge(_state.host, self.clock())  # it reports that the work is done
        return True

    def synchronize(self) -> None:
        _merge(_state.host, self.clock())

    def wait_stream(self, stream: Any) -> None:
        self.wait(stream.clock())

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        event = Event() if event is None else event
        event.record(self)
        return event


class ExternalStream(Stream):
    """A stream by its handle, which here is its number."""

    def __init__(self, stream_ptr: int, *args: Any, **kwargs: Any) -> None:
        self._handle = int(stream_ptr)
        super().__init__()

    def _number(self) -> int:
        return self._handle


class Event:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._clock: Clock = {}

    def record(self, stream: Any = None) -> None:
        self._clock = (stream or _state.current).clock()

    def wait(self, stream: Any = None) -> None:
        (stream or _state.current).wait(self._clock)

    def query(self) -> bool:
        _merge(_state.host, self._clock)
        return True

    def synchronize(self) -> None:
        _merge(_state.host, self._clock)

    def elapsed_time(self, end: Any) -> float:
        return 1.0


DEFAULT = Stream()
_state.current = DEFAULT


class StreamContext(Context):
    """torch.cuda.stream(...): None changes nothing."""

    def __init__(self, stream: Any = None, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stream = stream

    def __enter__(self) -> Any:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.stream is not None:
            self.stream.__exit__(*error)


def current() -> Any:
    return _state.current


def set_current(stream: Any) -> None:
    if stream is not None:
        _state.current = stream


def synchronize() -> None:
    _merge(_state.host, _state.launches)


def launched() -> None:
    """Count a kernel launch on the current stream."""
    number = _state.current.stream_id
    _state.launches[number] = _state.launches.get(number, 0) + 1


def begin() -> None:
    """Begin a call of the candidate on the default stream. All earlier launches count as finished."""
    synchronize()
    _state.current = DEFAULT


def unjoined() -> int:
    """The number of launches that neither the caller's stream nor the host knows to have finished."""
    known = DEFAULT.clock()
    _merge(known, _state.host)
    return sum(count - known.get(stream, 0) for stream, count in _state.launches.items())
