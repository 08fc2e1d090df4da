"""Reader of RL rows for an environment: the prompt, the reference, its class, an id.

Reads what `kernelmill problems export` writes for prime-rl and verifiers (`answer`, `info`) and for slime
(`label`, `extra_info`). References are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.errors import BadRow, SourceError
from kernelmill.problems.sets.rl_rows import decoded


class PromptRow(NamedTuple):
    id: str
    prompt: list[dict[str, str]]
    reference: str
    entry_point: str | None


def read_rows(path: Path) -> Iterator[PromptRow]:
    """Read the rows. Raises `SourceError` for an unreadable file, `BadRow` for a line that is no such row."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from None
    if not lines:
        raise SourceError(f"{path}: there is no row in it")
    for number, line in enumerate(lines, 1):
        where = f"{path}:{number}"
        row = decoded(line, where)
        info = row.get("info") or row.get("extra_info") or {}
        if not isinstance(info, dict):
            raise BadRow(where, "expected an object", "$.info or $.extra_info")
        yield PromptRow(
            str(row.get("instance_id") or info.get("instance_id") or number),
            _messages(row.get("prompt"), where),
            _text(row.get("answer", row.get("label")), where),
            info.get("entry_point"),
        )


def _messages(value: Any, where: str) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
        raise BadRow(where, "expected a list of messages", "$.prompt")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise BadRow(where, "expected the reference's source", "$.answer or $.label")
    return value
