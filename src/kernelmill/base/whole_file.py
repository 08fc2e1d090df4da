"""A file that is written at once: whole or not at all. For rows that come one by one there is `output`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from kernelmill.errors import OutputError


def write_whole(path: Path, content: bytes) -> None:
    """Put the content in place. What was there stays until all of the new is on the disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:  # an interrupt leaves no half of it, either
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OutputError(f"{path} cannot be written ({error.strerror})") from None
        raise


def encoded(value: Any) -> bytes:
    """JSON for people."""
    import msgspec  # not where the evaluator runs alone

    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
