"""Frames from a stranger's process: whatever they hold, they are read or refused, and nothing else."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.evaluate.judge.channel import (
    BadFrame,
    Bytes,
    Channel,
    Closed,
    Other,
    TimedOut,
    pack,
    strided,
    unpack,
)
from kernelmill.torch_calls.tensors import LAYOUTS, Sparse
from tests.conftest import many

HEAD = struct.Struct("<IQ")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["shape", "dtype", "list", "tuple", "dict", "value", "float", "Size", "device", "other", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


def crossed(value: Any) -> Any:
    out = Bytes()
    packed = json.loads(json.dumps(pack(value, out)))
    return unpack(packed, Bytes([memoryview(bytearray(blob)) for blob in out.sent]))


def left(seconds: float) -> Callable[[], float]:
    """So many seconds by the clock."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


@contextmanager
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    mine, theirs = socket.socketpair()
    with mine, theirs:
        yield Channel(mine), theirs


@given(JSON, st.lists(st.binary(max_size=16), max_size=3))
@settings(max_examples=many(300), deadline=None)
def test_any_header_is_read_or_refused(packed: Any, blobs: list[bytes]) -> None:
    with suppress(BadFrame):
        unpack(packed, Bytes([memoryview(bytearray(blob)) for blob in blobs]))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int64", "bool", "complex64", "float8_e4m3fn"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 5), (2, 0, 4)])
def test_a_tensor_crosses_bit_for_bit(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = torch.randint(0, 2, shape).to(getattr(torch, dtype))
    got = crossed(tensor)
    assert (got.shape, got.dtype) == (tensor.shape, tensor.dtype)
    if tensor.numel():
        assert torch.equal(got.reshape(-1).view(torch.uint8), tensor.reshape(-1).view(torch.uint8))


def test_nested_values_and_odd_floats_cross_as_they_are() -> None:
    value = {"a": [1, 2.5, float("inf")], "b": (None, True, "text"), "c": {"d": torch.float16}}
    assert crossed(value) == value
    assert crossed(float("nan")) != crossed(float("nan"))


def test_strides_are_told_and_can_be_had_again() -> None:
    tensor = torch.arange(12.0).reshape(3, 4).t()
    out = Bytes()
    packed = pack(tensor, out)
    got = strided(packed, unpack(packed, Bytes([memoryview(bytearray(blob)) for blob in out.sent])))
    assert got.stride() == tensor.stride()
    assert torch.equal(got, tensor)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_crosses_as_its_parts(layout: str) -> None:
    dense = torch.randn(6, 8) * (torch.rand(6, 8) < 0.4)
    blocks = {"blocksize": (2, 2)} if "bs" in layout else {}
    tensor = dense.to_sparse(layout=LAYOUTS[layout], **blocks)
    parts = crossed([tensor])[0]
    assert isinstance(parts, Sparse)
    assert parts.assembled().layout == tensor.layout
    assert torch.equal(parts.assembled().to_dense(), dense)


@pytest.mark.parametrize("inner", [[], [{"value": 1}] * 5, [{"value": "sparse_coo"}, {"Size": [2]}]])
def test_a_sparse_tensor_without_its_parts_is_refused(inner: list[object]) -> None:
    with pytest.raises(BadFrame):
        unpack({"sparse": inner}, Bytes([]))


def test_what_is_no_plain_value_does_not_cross() -> None:
    class Mine(torch.Tensor):
        pass

    for value in (object(), torch.ones(2).as_subclass(Mine), lambda: 0):
        assert isinstance(crossed(value), Other)


def test_a_frame_that_announces_too_much_is_refused_before_memory_is_taken() -> None:
    with ends() as (channel, theirs):
        theirs.sendall(HEAD.pack(2, 1 << 60))
        with pytest.raises(BadFrame):
            channel.receive(left(60))


@pytest.mark.parametrize(
    "header",
    [b"[]", b"{}", b'{"sizes": [-1]}', b'{"sizes": [5]}', b'{"sizes": "x"}', b"not json", b"[" * 10_000],
)
def test_a_header_that_is_none_is_refused(header: bytes) -> None:
    with ends() as (channel, theirs):
        theirs.sendall(HEAD.pack(len(header), 0) + header)
        with pytest.raises(BadFrame):
            channel.receive(left(60))


def test_a_silent_side_times_out() -> None:
    with ends() as (channel, _), pytest.raises(TimedOut):
        channel.receive(left(0.05))


def test_a_silent_side_has_as_much_time_as_is_said_whenever_it_is_over() -> None:
    """As for a process that had no processor to run on: the clock has gone on, and its own time has not."""
    answers = iter([0.01, 0.01, 0.01, 0.0])
    with ends() as (channel, _), pytest.raises(TimedOut):
        channel.receive(lambda: next(answers))
    assert list(answers) == []


def test_a_side_that_drips_times_out_as_well() -> None:
    stop = threading.Event()
    with ends() as (channel, theirs):

        def drip() -> None:
            while not stop.wait(0.02):
                theirs.send(b"\0")

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with pytest.raises(TimedOut):
                channel.receive(left(0.15))
        finally:
            stop.set()
            dripping.join()


def test_a_side_that_is_gone_is_told_apart() -> None:
    with ends() as (channel, theirs):
        theirs.close()
        with pytest.raises(Closed):
            channel.receive(left(60))
        with pytest.raises(Closed):
            channel.send({}, [b"x" * (1 << 22)])
