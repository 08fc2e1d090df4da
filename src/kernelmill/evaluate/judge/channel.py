"""Frames between the judge and a candidate: a length, a JSON header, the raw bytes of tensors. Never pickle.

The judge reads what an untrusted process wrote. It checks every length, type and shape before it allocates
memory, and raises `BadFrame` for anything malformed. A header carries a nonce that the judge chose for the
request; the answer must repeat it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import select
import socket
import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

from kernelmill.evaluate.task import offline_models
from kernelmill.torch_calls.tensors import LAYOUTS, Sparse, is_sparse, parts_of

MAX_HEADER = 8 << 20
MAX_BYTES = 2 << 30
MAX_TENSORS = 4096
MAX_DEPTH = 16
_HEAD = struct.Struct("<IQ")
_LOOK_AGAIN = 0.25
_PARTS = 64
"""Of a frame, sent by one call of the system."""

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn,
        torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64,
    )
}  # fmt: skip


class BadFrame(Exception):
    """The other side violated the protocol."""


class Closed(Exception):
    """The other side's process has ended."""


class TimedOut(Exception):
    """The other side did not answer in time."""


class Channel:
    """One end of the socket."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(
        self,
        header: dict[str, Any],
        blobs: list[bytes] | None = None,
        left: Callable[[], float] | None = None,
    ) -> None:
        """Send a frame. `left` returns how many seconds the other side still has to read it."""
        blobs = blobs or []
        head = json.dumps(header | {"sizes": [len(blob) for blob in blobs]}).encode()
        first = _HEAD.pack(len(head), sum(map(len, blobs))) + head
        parts = [memoryview(part) for part in (first, *blobs) if len(part)]
        self._end.settimeout(0.0 if left is not None else None)
        waited = False
        while parts:
            try:
                sent = self._end.sendmsg(parts[:_PARTS])
            except BlockingIOError:
                select.select([], [self._end], [], _patience(left, waited))
                waited = True
                continue
            except (BrokenPipeError, ConnectionResetError) as error:
                raise Closed(str(error)) from None
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = parts[0][sent:]

    def receive(self, left: Callable[[], float] | None = None) -> tuple[dict[str, Any], list[memoryview]]:
        """Receive the next frame.

        `left` returns how many seconds the other side still has. It is called again while waiting, because
        own time can pass more slowly than the wall clock.
        """
        size, rest = _HEAD.unpack(self._exactly(_HEAD.size, left))
        if size > MAX_HEADER or rest > MAX_BYTES:
            raise BadFrame(f"a frame of {size} and {rest} bytes")
        try:
            header = json.loads(bytes(self._exactly(size, left)))
        except (ValueError, RecursionError) as error:
            raise BadFrame(f"no JSON: {error}") from None
        sizes = header.get("sizes") if isinstance(header, dict) else None
        if (
            not isinstance(sizes, list)
            or len(sizes) > MAX_TENSORS
            or any(type(n) is not int or n < 0 for n in sizes)
        ):
            raise BadFrame("no sizes")
        if sum(sizes) != rest:
            raise BadFrame(f"sizes of {sum(sizes)} bytes, and {rest} announced")
        data = memoryview(self._exactly(rest, left))
        blobs, start = [], 0
        for length in sizes:
            blobs.append(data[start : start + length])
            start += length
        return header, blobs

    def _exactly(self, size: int, left: Callable[[], float] | None) -> bytearray:
        data = bytearray(size)
        view, got = memoryview(data), 0
        # Read without waiting first: data that has already arrived counts, however late it is read.
        self._end.settimeout(0.0 if left is not None else None)
        waited = False
        while got < size:
            try:
                count = self._end.recv_into(view[got:], min(size - got, 1 << 22))
            except BlockingIOError:
                select.select([self._end], [], [], _patience(left, waited))
                waited = True
                continue
            except ConnectionResetError:
                count = 0
            if not count:
                raise Closed("the socket is closed")
            got += count
        return data


def _patience(left: Callable[[], float] | None, waited: bool) -> float | None:
    """How long to wait before calling `left` again: the other side may have had no processor to run on.

    The first time it is not called: it reads files, and most answers come at once.
    """
    if left is None:
        return None
    if not waited:
        return _LOOK_AGAIN
    seconds = left()
    if seconds <= 0:
        raise TimedOut
    return min(seconds, _LOOK_AGAIN)


class Carrier(Protocol):
    """Transport for a tensor's data: in the frame, or in GPU memory that both sides map (`gpu.arena`)."""

    def put(self, tensor: torch.Tensor) -> dict[str, Any]:
        """Take a contiguous tensor. The result is merged into the tensor's packed form."""

    def get(self, packed: dict[str, Any], shape: list[int], dtype: torch.dtype) -> torch.Tensor: ...


class Bytes:
    """Carries tensors as bytes in the frame, in order."""

    def __init__(self, blobs: list[memoryview] | None = None) -> None:
        self.sent: list[bytes] = []
        self._received = blobs or []

    def put(self, tensor: torch.Tensor) -> dict[str, Any]:
        self.sent.append(_bytes_of(tensor))
        return {}

    def get(self, packed: dict[str, Any], shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        if not self._received:
            raise BadFrame("a tensor without bytes")
        data = self._received.pop(0)
        if math.prod(shape) * dtype.itemsize != len(data):
            raise BadFrame(f"{len(data)} bytes for a tensor of {shape} {dtype}")
        if not len(data):
            return torch.empty(shape, dtype=dtype)
        return _frombuffer(data, dtype=dtype).reshape(shape)


class Hollow:
    """Carries shapes and types only. What arrives is zero everywhere, in pages that exist once they are touched."""

    def put(self, tensor: torch.Tensor) -> dict[str, Any]:
        return {}

    def get(self, packed: dict[str, Any], shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        flat = _from_numpy(np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)).view(dtype)
        if dtype.is_floating_point and dtype.itemsize > 1:  # some numbers, so that not all are the same
            for few in (flat[:_SOME], flat[-_SOME:]):
                few.copy_(torch.rand(few.shape, dtype=torch.float32))
        return flat.reshape(shape)


_SOME = 1024
_from_numpy, _frombuffer = torch.from_numpy, torch.frombuffer
"""A process that pretends a GPU replaces them."""


def pack(value: Any, carrier: Carrier) -> dict[str, Any]:
    """Convert a value to JSON, with its tensors given to the carrier.

    Tensors must be of an exact type, and no untrusted method on them is called.
    """
    kind = type(value)
    if (fields := offline_models.plain(value)) is not None:
        return {"config": json.dumps(fields)}
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            if is_sparse(value):
                return {"sparse": [pack(part, carrier) for part in parts_of(value)]}
            if _layout(value) != torch.strided:
                return {"other": f"a tensor of layout {_layout(value)}"}
            name = str(_dtype(value)).removeprefix("torch.")
            if name not in DTYPES:
                return {"other": f"a tensor of {name}"}
            plain = _contiguous(_resolve(_detach(value)))
            packed = {"shape": list(_shape(value)), "dtype": name, **carrier.put(plain)}
            if _stride(value) != _stride(plain):
                packed["stride"] = list(_stride(value))
            return packed
    if kind in (list, tuple):
        return {kind.__name__: [pack(item, carrier) for item in value]}
    if kind is Sparse:
        return {"sparse": [pack(part, carrier) for part in value]}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return {"tuple": [pack(item, carrier) for item in tuple.__iter__(value)]}
    if kind is dict and all(type(key) is str for key in value):
        return {"dict": {key: pack(item, carrier) for key, item in value.items()}}
    if dataclasses.is_dataclass(value) and kind.__dictoffset__:
        return {"dict": {f.name: pack(getattr(value, f.name), carrier) for f in dataclasses.fields(value)}}
    if kind is float:
        return {"float": value.hex()}
    if value is None or kind in (bool, int, str):
        return {"value": value}
    if kind in (torch.dtype, torch.device, torch.Size):
        return {kind.__name__: list(value) if kind is torch.Size else str(value)}
    return {"other": f"{kind.__module__}.{kind.__qualname__}"}


class Other:
    """Placeholder for a value that cannot be sent."""

    def __init__(self, what: str) -> None:
        self.what = what


class Config(Other):
    """A serialised `transformers` configuration.

    The candidate's side rebuilds it; the judge's side does not.
    """

    def __init__(self, text: str) -> None:
        super().__init__("a configuration of transformers")
        self.text = text


def unpack(packed: Any, carrier: Carrier, depth: int = 0) -> Any:
    """Rebuild a value from its packed form. Raise `BadFrame` for anything malformed."""
    if not isinstance(packed, dict) or not packed or depth > MAX_DEPTH:
        raise BadFrame("not a packed value")
    if "shape" in packed:
        return _tensor(packed, carrier)
    kind, inner = next(iter(packed.items()))
    if kind in ("list", "tuple") and isinstance(inner, list):
        items = [unpack(item, carrier, depth + 1) for item in inner]
        return items if kind == "list" else tuple(items)
    if kind == "sparse" and isinstance(inner, list):
        return _sparse([unpack(item, carrier, depth + 1) for item in inner])
    if kind == "dict" and isinstance(inner, dict):
        return {key: unpack(item, carrier, depth + 1) for key, item in inner.items()}
    if kind == "value" and (inner is None or isinstance(inner, bool | int | str)):
        return inner
    try:
        if kind == "float":
            return float.fromhex(inner)
        if kind == "Size":
            return torch.Size(inner)
        if kind == "dtype":
            return DTYPES[inner.removeprefix("torch.")]
        if kind == "device":
            return torch.device(inner)
    except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise BadFrame(f"{kind}: {error}") from None
    if kind == "config":
        return Config(str(inner))
    if kind == "other":
        return Other(str(inner)[:200])
    raise BadFrame(f"an unknown kind {kind[:40]!r}")


def _sparse(parts: list[Any]) -> Sparse:
    """The parts of a sparse tensor. It is not assembled: where its values are may be nowhere."""
    try:
        found = Sparse(*parts)
    except TypeError as error:
        raise BadFrame(f"sparse: {error}") from None
    tensors = isinstance(found.places, tuple) and all(
        isinstance(part, torch.Tensor) for part in (*found.places, found.values)
    )
    if not tensors or found.layout not in LAYOUTS or not isinstance(found.size, tuple):
        raise BadFrame("a sparse tensor without parts")
    return found


def strided(packed: dict[str, Any], tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with its original strides. Only for the candidate's side, which trusts the judge."""
    if "stride" not in packed or 0 in packed["stride"]:
        return tensor
    return torch.empty_strided(
        packed["shape"], packed["stride"], dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def _tensor(packed: dict[str, Any], carrier: Carrier) -> torch.Tensor:
    shape, dtype = packed["shape"], DTYPES.get(str(packed.get("dtype")))
    if dtype is None or not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape):
        raise BadFrame("a tensor without shape or type")
    return carrier.get(packed, shape, dtype)


# Bound before untrusted code runs, so that its replacements on a tensor or on torch.Tensor are not called.
_detach, _contiguous, _view, _numpy = (
    torch.Tensor.detach,
    torch.Tensor.contiguous,
    torch.Tensor.view,
    torch.Tensor.numpy,
)
_reshape, _resolve_conj, _resolve_neg = (
    torch.Tensor.reshape,
    torch.Tensor.resolve_conj,
    torch.Tensor.resolve_neg,
)
_shape = torch.Tensor.shape.__get__
_dtype = torch.Tensor.dtype.__get__
_stride = torch.Tensor.stride
_layout = torch.Tensor.layout.__get__


def _resolve(tensor: torch.Tensor) -> torch.Tensor:
    return _resolve_neg(_resolve_conj(tensor))


def _bytes_of(tensor: torch.Tensor) -> bytes:
    if not math.prod(_shape(tensor)):
        return b""
    data: np.ndarray[Any, Any] = _numpy(_view(_reshape(tensor, (-1,)), torch.uint8))
    return data.tobytes()
