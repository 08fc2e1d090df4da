"""A trainer's completion as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the text itself, or the content of the assistant's last message. Empty if it has none."""
    if isinstance(completion, str):
        return completion
    said = [message["content"] for message in completion if message["role"] == "assistant"]
    return _flat(said[-1]) if said else ""


def _flat(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    """Join a message's content, which may come in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def mean(rewards: Sequence[float | None]) -> float:
    """Return the mean of the known rewards; 0 if none is known."""
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / len(known) if known else 0.0
