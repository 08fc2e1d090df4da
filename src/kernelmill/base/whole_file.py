"""Atomic file writes: whole or not at all. For rows that arrive one by one see `store.output`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernelmill.errors import OutputError


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content atomically. The old content stays until the new content is on disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:  # an interrupt must not leave a partial file either
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(f"{path} cannot be written ({error.strerror})") from None
        raise


def encoded(value: Any) -> bytes:
    """Encode a value as human-readable, indented JSON."""
    import msgspec  # not installed where the evaluator runs alone

    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
