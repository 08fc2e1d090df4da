"""What a kernel raises: the launch wraps it, as Triton's own interpreter does."""

from __future__ import annotations

from collections.abc import Callable

from triton.runtime.errors import InterpreterError


def raised_by(launch: Callable[[], object]) -> BaseException:
    """The exception that a kernel raised inside this launch."""
    try:
        launch()
    except InterpreterError as error:
        assert error.__cause__ is not None
        return error.__cause__
    raise AssertionError("it ran to its end")
