"""Loading of a problem's source as a Python module, in the two conventions in use.

It executes untrusted code, so call it only in a sandboxed process. Standard library only: workers without
other packages use it too.

    KernelBench   class `Model`, `get_init_inputs()` returns the constructor's positional arguments
    KernelBook    a class of any name, `get_init_inputs()` returns `[list, dict]`, and the source may import
                  its
                  configuration object from `_paritybench_helpers`

Both have `get_inputs()`; `get_input_kwargs()` is supported too.
"""

from __future__ import annotations

import linecache
import sys
import types
from typing import Any, Literal

Convention = Literal["kernelbench", "kernelbook"]

_HELPERS = "_paritybench_helpers"


class _MockConfig(dict[str, Any]):
    """Replaces the configuration object that KernelBook's sources import: keys are also attributes."""

    __setattr__ = dict.__setitem__

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def load(code: str, name: str, file: str) -> types.ModuleType:
    """Execute the source as module `name`, which `inspect` and tracebacks can read as `file`."""
    helpers = types.ModuleType(_HELPERS)
    helpers._mock_config = _MockConfig  # type: ignore[attr-defined]
    helpers.patch_functional = lambda: None  # type: ignore[attr-defined]
    sys.modules[_HELPERS] = helpers
    module = types.ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    linecache.cache[file] = (len(code), None, code.splitlines(keepends=True), file)
    exec(compile(code, file, "exec"), module.__dict__)
    return module


def forget(name: str) -> None:
    """Remove what `load` added to `sys.modules`."""
    for loaded in (name, _HELPERS):
        sys.modules.pop(loaded, None)


def init_inputs(module: types.ModuleType) -> tuple[Convention, list[Any], dict[str, Any]]:
    """Return the constructor's arguments. `[list, dict]` is KernelBook's form, a flat list KernelBench's."""
    made = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    if not isinstance(made, list | tuple):
        raise TypeError(f"get_init_inputs() returned a {type(made).__name__}, not a list")
    if len(made) == 2 and isinstance(made[0], list) and isinstance(made[1], dict):
        return "kernelbook", made[0], made[1]
    return "kernelbench", list(made), {}


def inputs(module: types.ModuleType) -> tuple[list[Any], dict[str, Any]]:
    made = module.get_inputs()
    if not isinstance(made, list | tuple):
        raise TypeError(f"get_inputs() returned a {type(made).__name__}, not a list")
    kwargs = module.get_input_kwargs() if hasattr(module, "get_input_kwargs") else {}
    if not isinstance(kwargs, dict):
        raise TypeError(f"get_input_kwargs() returned a {type(kwargs).__name__}, not a dict")
    return list(made), kwargs


def where(error: BaseException, file: str) -> str:
    """Describe an exception in one line: its type and message, and where it passed through.

    That is the last line of `file`, then the last line of a package that `file` uses. A line of `file` that
    only calls the package's own method says nothing and is left out."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
    number = error.lineno if isinstance(error, SyntaxError) else None
    package: tuple[str, int] | None = None
    step = error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if name == file:
            number, package = step.tb_lineno, None
        elif _of_package(name):
            package = name, step.tb_lineno
        step = step.tb_next
    line = linecache.getline(file, number).strip() if number else ""
    said = [f"line {number}: {line[:200]}"] if line and not (package and _passes_on(line)) else []
    if package is not None:
        name, at = package
        short = name.rpartition(_PACKAGES)[2]
        said.append(f"{short} line {at}: {linecache.getline(name, at).strip()[:200]}")
    return f"{text} ({'; '.join(said)})" if said else text


_PACKAGES = "site-packages/"
_NOT_NAMED = ("torch/", "numpy/", "kernelmill")


def _of_package(name: str) -> bool:
    return _PACKAGES in name and not name.rpartition(_PACKAGES)[2].startswith(_NOT_NAMED)


def _passes_on(line: str) -> bool:
    return "super().forward(" in line or "super().__init__(" in line
