"""The protocol between the parent and the server: frames, each a length and that many bytes.

A frame to the server is one JSON object, a request or a cancellation. A frame to the parent is one JSON
object, a newline, and the bytes that the child sent as its reply.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, TypedDict

MAX_REPLY = 8 << 20
MAX_REQUEST = 16 << 20
MAX_OUTPUT = 8 << 10
MAX_SCRATCH = 256 << 20
MAX_SCRATCH_FILES = 1 << 15
TOO_MUCH = f"wrote more than {MAX_SCRATCH >> 20} MB or {MAX_SCRATCH_FILES} files"

LENGTH = struct.Struct(">I")


class Settings(TypedDict):
    """The settings chosen by the user of a `Sandbox`."""

    worker: str
    workers: int
    timeout: float
    memory_mb: int
    companions: int
    reuse: int
    programs: list[str]
    environment: dict[str, str]
    gpu: bool


class Config(Settings):
    """The configuration of a server. `fd` is its end of the socket, `parent` the process at the other end."""

    path: list[str]
    scratch: str
    parent: int
    fd: int


def pack(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def write_frame(control: socket.socket, event: dict[str, Any], body: bytes = b"") -> None:
    """Send a frame to the parent."""
    control.sendall(pack(json.dumps(event).encode() + b"\n" + body))


def read_frames(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the frames of a stream up to its end. The last one is short if the stream was cut."""
    while len(head := stream.read(LENGTH.size)) == LENGTH.size:
        yield stream.read(LENGTH.unpack(head)[0])


def take_frames(received: bytearray) -> Iterator[bytearray]:
    """Remove the complete frames from the start of `received`, and yield them."""
    while len(received) >= LENGTH.size:
        end = LENGTH.size + LENGTH.unpack_from(received)[0]
        if len(received) < end:
            return
        frame = received[LENGTH.size : end]
        del received[:end]
        yield frame
