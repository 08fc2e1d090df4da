"""Write a file whole or not at all: into a temporary file beside it, which is renamed once it is complete.

`store.output` is for rows with rejects and a manifest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from kernelmill.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file, and put it in the place of `path` if the block ends well. Raises `OSError`."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # it may be left over, or a link to elsewhere
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write the content, and the folder where it is missing. Raises `OutputError` where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None


def encoded(value: Any) -> bytes:
    """Encode a value as indented JSON."""
    import msgspec  # not installed where the evaluator runs by itself

    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
