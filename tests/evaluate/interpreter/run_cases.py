"""Run the kernels of the cases_*.py files: each case in its own forked child, as the evaluator runs a candidate.

Started by conftest.py in a process of its own, because TRITON_INTERPRET must be set before triton is imported.
Prints one JSON object: the name of each case, and "" or the traceback of its failure.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
import warnings

import torch

from kernelmill.evaluate import interpreter
from tests.cost import calls_of
from tests.evaluate.interpreter.names import FILES, cases_of

INSTALL_CALLS = 25_000
"""It is done for each candidate, so it has to be cheap."""


def check_install() -> None:
    modules = set(sys.modules)
    calls = calls_of(interpreter.install)
    assert calls < INSTALL_CALLS, f"install() made {calls} calls"
    assert set(sys.modules) == modules, "install() imports what the parent could have imported"


def outcome(module: str, name: str, first: bool) -> str:
    """What one case ends with, in a child: nothing, or a traceback. The first one also counts what install() does."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            warnings.simplefilter("error")
            (check_install if first else interpreter.install)()
            torch.set_default_device("cuda")
            getattr(importlib.import_module(module), name)()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent reports it
            text = traceback.format_exc()
        with os.fdopen(write, "w") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return text or ("" if status == 0 else f"the child ended with status {status}")


def main() -> None:
    torch.set_num_threads(1)
    cases = [(file, name) for file in FILES for name in cases_of(file)]
    found = {f"{file}:{name}": outcome(file, name, (file, name) == cases[0]) for file, name in cases}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
