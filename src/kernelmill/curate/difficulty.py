"""Read the difficulty of a task from a model's answer.

A JSON answer is a `Rating`. A text states it between `<difficulty>` tags, once or always the same. Case, punctuation and whitespace
are ignored. An answer that is only the word is accepted too. Thoughts (`<think>…</think>`) are not read.
Anything else (prose, two different levels, another word) is an error, never a null.
"""

from __future__ import annotations

import re
from typing import get_args

from msgspec import Struct

from kernelmill.base.rows import Difficulty
from kernelmill.curate.thoughts import strip_thoughts
from kernelmill.llm.engine import BadAnswer

LEVELS: tuple[Difficulty, ...] = get_args(Difficulty)


class Rating(Struct, forbid_unknown_fields=True):
    """A rating as a JSON answer has it."""

    evaluation: str
    difficulty: Difficulty

    def text(self) -> str:
        """The rating as a text answer would state it."""
        return f"{self.evaluation.strip()}\n\n<difficulty>{self.difficulty}</difficulty>"


_TAGGED = re.compile(r"<difficulty>(.*?)</difficulty>", re.DOTALL | re.IGNORECASE)


def read_difficulty(text: str) -> Difficulty:
    """Return the level that an answer states. Raises `BadAnswer`."""
    answer = strip_thoughts(text)
    stated = _TAGGED.findall(answer) or ([answer] if len(answer.split()) == 1 else [])
    words = {re.sub(r"[\W_]+", " ", word).strip().lower() for word in stated}
    if not words:
        raise BadAnswer("no <difficulty>…</difficulty> in the answer")
    if len(words) > 1:
        raise BadAnswer(f"the answer states several difficulties: {', '.join(sorted(words))}")
    word = words.pop()
    for level in LEVELS:
        if word == level:
            return level
    raise BadAnswer(f"{word[:40]!r} is no difficulty (low, medium or high)")
