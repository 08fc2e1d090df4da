"""Thoughts that a model wrote into its answer, told from the answer."""

from __future__ import annotations

import re

from kernelmill.llm.engine import BadAnswer

_TAG = re.compile(r"<\s*(?P<closes>/?)\s*think(?:ing)?\s*>", re.IGNORECASE)


def strip_thoughts(text: str) -> str:
    """The answer without `<think>…</think>`, and without everything before a `</think>` that nothing opened.

    Raises `BadAnswer` where thoughts begin and do not end: what follows may be thoughts or the answer.
    """
    answer: list[str] = []
    end = 0
    thinking = False
    for tag in _TAG.finditer(text):
        if not tag["closes"]:
            if not thinking:
                answer.append(text[end : tag.start()])
            thinking = True
        else:
            if not thinking:
                # Some servers swallow the opening tag; a tag inside thoughts ends up here too.
                answer.clear()
            thinking = False
            end = tag.end()
    if thinking:
        raise BadAnswer("the answer has a <think> that is never closed")
    return "".join([*answer, text[end:]])
