"""Remove the thoughts that a model wrote into its answer."""

from __future__ import annotations

from kernelmill.base.answers import NoAnswer, split_thoughts
from kernelmill.llm.engine import BadAnswer


def strip_thoughts(text: str) -> str:
    """Return the answer without its thoughts. Raises `BadAnswer` where they are not closed."""
    try:
        return split_thoughts(text)[1]
    except NoAnswer as error:
        raise BadAnswer(str(error)) from None
