"""Thoughts that a model wrote into its answer, left out."""

from __future__ import annotations

from kernelmill.base.answers import NoAnswer, split_thoughts
from kernelmill.llm.engine import BadAnswer


def strip_thoughts(text: str) -> str:
    """The answer without its thoughts. Raises `BadAnswer` where they begin and do not end."""
    try:
        return split_thoughts(text)[1]
    except NoAnswer as error:
        raise BadAnswer(str(error)) from None
