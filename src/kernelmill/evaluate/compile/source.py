"""Turn a candidate's kernels into sources for Triton's compiler, built as a launch would build them.

`ExecutedModule` executes the module on a fake GPU that launches nothing, and finds its kernels by their qualified
names. `source_of` turns a kernel and the record of a launch into what `triton.compile` takes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any
from unittest import mock

import triton.language as tl
import triton.language.extra.cuda
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, code_generator, compiler, make_backend
from triton.runtime import autotuner, cache, jit
from triton.runtime.jit import JITFunction

from kernelmill.evaluate import gpu_backends
from kernelmill.evaluate.fake_gpu import cuda, driver
from kernelmill.evaluate.gpu_backends import BACKENDS

_MODULE = "candidate"
_MOST_FUNCTIONS = 8
"""How many functions made at one place in the source are compiled for one launch."""
_GUARDED = (
    *(backend.compiler for backend in BACKENDS.values()),
    *(gpu_backends, compiler, code_generator, autotuner, cache, jit, subprocess),
)


class NotBuildable(Exception):
    """The kernel cannot be built without running the candidate."""


class ExecutedModule:
    """An executed module. `replaced` names the compiler functions that it has replaced."""

    def __init__(self, code: str) -> None:
        file = os.path.join(tempfile.gettempdir(), "candidate.py")
        with open(file, "w", encoding="utf-8", errors="surrogatepass") as stream:
            stream.write(code)
        _gpu()
        module = types.ModuleType(_MODULE)
        module.__file__ = file
        sys.modules[_MODULE] = module
        self._namespace = module.__dict__
        self._code = compile(code, file, "exec")
        guarded = _guarded()
        with _nothing_is_launched() as self._made:
            before = [vars(owner).get(key) for _, owner, key in guarded]
            exec(self._code, self._namespace)
            pairs = zip(guarded, before, strict=True)
            self.replaced = sorted(
                name for (name, owner, key), was in pairs if vars(owner).get(key) is not was
            )

    @contextlib.contextmanager
    def on(self, target: GPUTarget) -> Iterator[None]:
        """Make Triton's library see `target` as the current GPU."""
        with mock.patch.object(_gpu(), "get_current_target", return_value=target):
            yield

    def kernels(self, name: str) -> list[JITFunction[Any]]:
        """The functions that `name` may mean. There are several if one function made several kernels.

        If there are several definitions, the last one counts, as in Python.
        """
        found = [kernel for kernel in self._made if kernel.fn.__qualname__ == name]
        if not found:
            found = [self._made_later(name)]
        last = found[-1]
        if last.is_gluon():
            raise NotBuildable(f"{name} is written in Gluon")
        line = last.fn.__code__.co_firstlineno
        return [kernel for kernel in found if kernel.fn.__code__.co_firstlineno == line][-_MOST_FUNCTIONS:]

    def line_of(self, source: str) -> int | None:
        """The line where the candidate defines the function with this source, if it does."""
        for kernel in self._made:
            if kernel.src == source:
                lines = enumerate(kernel.raw_src, kernel.starting_line_number)
                return next(number for number, line in lines if line.lstrip().startswith("def "))
        return None

    def _made_later(self, name: str) -> JITFunction[Any]:
        """Build a kernel defined in a function that has not run.

        This requires that it has no free variables.
        """
        codes = [self._code]
        while codes:
            code = codes.pop()
            if code.co_qualname == name:
                if code.co_freevars:
                    taken = ", ".join(code.co_freevars)
                    raise NotBuildable(f"{name} is made while the candidate runs, with its values of {taken}")
                kernel = JITFunction(types.FunctionType(code, self._namespace))
                self._made.append(kernel)
                return kernel
            codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        raise NotBuildable(f"the candidate does not define {name}")


def source_of(
    kernel: JITFunction[Any], launch: dict[str, Any], candidate: ExecutedModule, target: GPUTarget
) -> tuple[ASTSource, dict[str, Any]]:
    """Return what a launch would compile, and its options. Raises what Triton raises for unknown options."""
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
            value = _constant(values[name], candidate)
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


def _constant(value: Any, candidate: ExecutedModule) -> Any:
    """Convert a constant from its JSON form."""
    if isinstance(value, str) and value.startswith("tl."):
        name = value.removeprefix("tl.")
        return getattr(tl, name) if hasattr(tl, name) else tl.dtype(name)
    if isinstance(value, list):
        return tuple(_constant(item, candidate) for item in value)
    if isinstance(value, dict):
        if "float" in value:
            return float(value["float"])
        if "function" in value:
            return candidate.kernels(value["function"])[-1]
        raise NotBuildable(f"launched with the constant {value.get('repr', value)}")
    return value


@functools.cache
def _guarded() -> tuple[tuple[str, Any, str], ...]:
    """The functions of the compiler and of its callers, as far as a module can reach them by name.

    Each is a name to report, and the module or class that has it under a key. Found once per process and
    inherited by its forks: going through all modules takes a fork milliseconds, because it copies their pages.
    """
    found: dict[str, tuple[str, Any, str]] = {}
    ours = [module for name, module in sys.modules.items() if name.startswith("kernelmill.evaluate.compil")]
    for module in [*_GUARDED, *ours]:
        for key, value in vars(module).items():
            name = f"{module.__name__}.{key}"
            if callable(value):
                found[name] = name, module, key
            if isinstance(value, type) and value.__module__ == module.__name__:
                inner = [(f"{name}.{own}", value, own) for own, one in vars(value).items() if callable(one)]
                found |= {one[0]: one for one in inner}
    return tuple(found.values())


@functools.cache
def _gpu() -> Any:
    """The fake GPU, installed once per process and inherited by its forks."""
    cuda.install()
    driver.install()
    return triton.runtime.driver.active


@contextlib.contextmanager
def _nothing_is_launched() -> Iterator[list[JITFunction[Any]]]:
    """Collect the kernels that are made, and turn every launch into a no-op."""
    made: list[JITFunction[Any]] = []
    real = JITFunction.__init__

    def noted(self: JITFunction[Any], *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        made.append(self)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(JITFunction, "__init__", noted))
        for kind in (JITFunction, autotuner.Autotuner, autotuner.Heuristics):
            stack.enter_context(mock.patch.object(kind, "run", return_value=None))
        yield made
