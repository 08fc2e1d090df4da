"""Read the difficulty of a task from a model's answer.

The answer states it between `<difficulty>` tags, once or always the same. Case, punctuation and whitespace
are ignored. An answer that is only the word is accepted too. Thoughts (`<think>…</think>`) are not read.
Anything else (prose, two different levels, another word) is an error, never a null.
"""

from __future__ import annotations

import re
from typing import get_args

from kernelmill.base.rows import Difficulty
from kernelmill.curate.thoughts import strip_thoughts
from kernelmill.llm.engine import BadAnswer

LEVELS: tuple[Difficulty, ...] = get_args(Difficulty)

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
