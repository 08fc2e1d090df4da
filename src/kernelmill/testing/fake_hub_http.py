"""The HTTP layer of the fake hub: reads whole requests, sends responses whole or truncated.

It is independent of what is requested and answered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler


class Answer:
    """A response. A body of bytes is sent as it is, everything else as JSON."""

    def __init__(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.headers = dict(headers or {})


def answer_range(data: bytes, wanted: str, headers: dict[str, str]) -> Answer:
    """Answer a Range header. Several ranges at once are not supported: the whole is sent, as HTTP allows."""
    match, size = re.fullmatch(r"bytes=(\d*)-(\d*)", wanted), len(data)
    if match is None or match[0] == "bytes=-":
        return Answer(data, 200, headers)
    first = int(match[1]) if match[1] else max(size - int(match[2]), 0)
    last = min(int(match[2]), size - 1) if match[1] and match[2] else size - 1
    if first > last:
        return Answer(b"", 416, {**headers, "Content-Range": f"bytes */{size}"})
    return Answer(data[first : last + 1], 206, {**headers, "Content-Range": f"bytes {first}-{last}/{size}"})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every response waits for the client's delayed acknowledgement

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing to stderr: the hub records its requests."""

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._read(int(self.headers.get("Content-Length") or 0))
        body = bytearray()
        while size := int(self.rfile.readline() or b"0", 16):
            body += self._read(size)
            self._read(2)  # the line end after a chunk
        self._read(2)  # the empty line after the last
        return bytes(body)

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:  # an incomplete request must have no effect
            raise ConnectionAbortedError("the client left before the end of its request")
        return data

    def send_answer(self, answer: Answer, cut: bool) -> None:
        self.close_connection = self.close_connection or cut
        size = len(answer.body)
        if cut and (self.command == "HEAD" or size == 0):  # no body to truncate: close without a response
            return
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(size), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: size // 2] if cut else answer.body)
