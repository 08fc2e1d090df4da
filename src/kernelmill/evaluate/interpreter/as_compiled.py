"""Kernels look as on a GPU: nothing that code asks for says that they are interpreted.

Code that takes another path under the interpreter would be judged for what it does nowhere else. Not covered: code
that searches for the interpreter. What a candidate does where nobody judges it is no part of a verdict.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import triton
from triton import knobs
from triton.runtime import autotuner, jit
from triton.runtime import interpreter as stock

_JITFunction = jit.JITFunction


class _Instead:
    """Another object, with some attributes of its own."""

    def __init__(self, other: Any, **own: Any) -> None:
        self._other = other
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)


def install() -> None:
    """Give interpreted kernels the class that compiled ones have. `triton.jit` goes on making interpreted ones."""
    jit.knobs = autotuner.knobs = _Instead(knobs, runtime=_Instead(knobs.runtime, interpret=True))
    kind = stock.InterpretedFunction
    kind.__name__ = kind.__qualname__ = "JITFunction"
    kind.__module__ = jit.__name__
    for name in (
        "device_caches",
        "hash",
        "src",
        "raw_src",
        "starting_line_number",
        "module",
        "params",
        "signature",
    ):
        setattr(kind, name, property(functools.partial(_of_the_compiled, name)))
    triton.JITFunction = triton.runtime.JITFunction = jit.JITFunction = kind


def _of_the_compiled(name: str, kernel: Any) -> Any:
    return getattr(_compiled(kernel.fn), name)


@functools.cache
def _compiled(function: Any) -> Any:
    return _JITFunction(function)


def forget_the_setting() -> None:
    """Remove the environment variable, which `knobs.runtime.interpret` reads each time."""
    os.environ.pop("TRITON_INTERPRET", None)
