"""Turn a kernel of a candidate's program into a source for Triton's compiler, built as a launch would build it.

The kernels are made from their text (`trace.kernel_text`), the same that the judge has interpreted. Nothing else of
the candidate is loaded here.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import triton.language as tl
import triton.language.extra.cuda
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

from kernelmill.evaluate.fake_gpu import cuda, driver
from kernelmill.evaluate.judge.channel import DTYPES
from kernelmill.evaluate.kernel_source import CANDIDATE_MODULE
from kernelmill.evaluate.trace.kernel_text import Kernels


class NotBuildable(Exception):
    """The record of the launch does not say enough to build the kernel."""


class ProgramKernels:
    """The kernels of a program, by the names in its launches."""

    def __init__(self, texts: dict[str, dict[str, Any]], folder: str) -> None:
        self._texts, self._kernels = texts, Kernels(texts, folder)
        _gpu()

    def __getitem__(self, name: str) -> JITFunction[Any]:
        if name not in self._texts:
            raise NotBuildable(f"the text of {name} is not known")
        kernel: JITFunction[Any] = self._kernels[name]
        return kernel

    def line_of(self, source: str) -> int | None:
        """The line where the candidate defines the function with this source, if it does."""
        for entry in self._texts.values():
            if entry["module"] == CANDIDATE_MODULE and entry["text"].strip() == source.strip():
                return int(entry["line"])
        return None


@contextlib.contextmanager
def on(target: GPUTarget) -> Iterator[None]:
    """Make Triton's library see `target` as the current GPU."""
    with mock.patch.object(_gpu(), "get_current_target", return_value=target):
        yield


def source_of(
    launch: dict[str, Any], kernels: ProgramKernels, target: GPUTarget
) -> tuple[ASTSource, dict[str, Any]]:
    """Return what a launch would compile, and its options. Raises what Triton raises for unknown options."""
    kernel = kernels[launch["kernel"]]
    given, values, divisible = launch["signature"], launch.get("constexprs") or {}, launch.get("attrs") or ()
    if set(given) != set(kernel.arg_names):
        raise NotBuildable(f"launched with {sorted(given)}, defined with {sorted(kernel.arg_names)}")

    def argument(param: Any, kind: Any, name: str) -> tuple[Any, Any, Any]:
        """The type, what the launch is specialised on, and the value if it is a constant."""
        if isinstance(kind, list):  # a tuple, whose parts are named by their index: `sizes.0`
            parts = [argument(param, one, f"{name}.{number}") for number, one in enumerate(kind)]
            kinds, marks, inner = zip(*parts, strict=True) if parts else ((), (), ())
            return kinds, marks, inner
        if kind == "constexpr":
            if name not in values:
                raise NotBuildable(f"launched with no value of {name}")
            value = _constant(values[name], kernels)
            return kind, value, value
        looked_at = kind[0] in "*iu" and kind not in ("i1", "u1") and not param.do_not_specialize
        return kind, ("D" if name in divisible else "") if looked_at else None, None

    found = [argument(param, given[param.name], param.name) for param in kernel.params]
    options = {name: launch[name] for name in ("num_warps", "num_stages") if launch.get(name) is not None}
    options |= launch.get("options") or {}
    options["debug"] = options.get("debug", kernel.debug) or knobs.runtime.debug
    bound = {param.name: value for param, (_, _, value) in zip(kernel.params, found, strict=True)}
    specialization = [(kind, mark) for kind, mark, _ in found]
    # Triton's own method, because it differs between versions.
    parsed, signature, constants, attributes = kernel._pack_args(
        make_backend(target), options, bound, specialization, {}
    )
    return ASTSource(kernel, signature, constants, attributes), parsed.__dict__


def _constant(value: Any, kernels: ProgramKernels) -> Any:
    """Convert a constant from its JSON form."""
    if isinstance(value, str) and value.startswith("tl."):
        name = value.removeprefix("tl.")
        return getattr(tl, name) if hasattr(tl, name) else tl.dtype(name)
    if isinstance(value, list):
        return tuple(_constant(item, kernels) for item in value)
    if isinstance(value, dict):
        if "float" in value:
            return float(value["float"])
        if "torch" in value:
            return DTYPES[value["torch"]]
        if "function" in value:
            return kernels[value["function"]]
        raise NotBuildable(f"launched with the constant {value.get('repr', value)}")
    return value


@functools.cache
def _gpu() -> Any:
    """The fake GPU, installed once per process and inherited by its forks."""
    cuda.install()
    driver.install()
    return triton.runtime.driver.active
