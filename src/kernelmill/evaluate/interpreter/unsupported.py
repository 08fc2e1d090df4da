"""Distinguish what the interpreter cannot run (`evaluate.interpreter_gaps`) from a candidate's own mistakes.

A candidate that hits one of these limits is not judged here: the answer is "unsupported", never "incorrect".
"""

from __future__ import annotations

import traceback

from triton.runtime.interpreter import InterpreterBuilder

from kernelmill.evaluate.interpreter import launch
from kernelmill.evaluate.interpreter_gaps import Unsupported


def is_unsupported(error: BaseException) -> str | None:
    """The reason, if this error (or one that led to it) is a limit of the interpreter; else None."""
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        if isinstance(step, Unsupported):
            return str(step)
        # Operations that the interpreter's builder lacks surface as a missing create_* method.
        lacks = isinstance(step, AttributeError) and isinstance(
            getattr(step, "obj", None), InterpreterBuilder
        )
        if lacks and any(frame.f_code is launch.RUN for frame, _ in traceback.walk_tb(error.__traceback__)):
            name = getattr(step, "name", "")
            return f"language: {name} is not in this Triton's interpreter"
        step = step.__cause__ or step.__context__
    return None
