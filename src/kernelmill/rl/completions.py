"""What trainers call a completion, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The text itself, or what the last message of the assistant says. Empty where it says nothing."""
    if isinstance(completion, str):
        return completion
    said = [message["content"] for message in completion if message["role"] == "assistant"]
    return _flat(said[-1]) if said else ""


def _flat(content: str | Sequence[Mapping[str, Any]] | None) -> str:
    """A message's content may come in parts."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text", "") for part in content)


def mean(rewards: Sequence[float | None]) -> float | None:
    """Of those that are known."""
    known = [reward for reward in rewards if reward is not None]
    return sum(known) / len(known) if known else None
