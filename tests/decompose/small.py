"""Sources of tiny models, and what is made of them in this process."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import torch

from kernelmill.decompose.worker import decomposed


def source(init: str, forward: str, inputs: str, before: str = "", arguments: str = "") -> str:
    signature = ", ".join(filter(None, ["self", arguments]))
    return f"""import math
import torch
import torch.nn as nn
import torch.nn.functional as F

{before}

class Model(nn.Module):
    def __init__({signature}):
        super().__init__()
        {init}

    def forward(self, x, *more):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""


def files(code: str, level: int | None = None) -> dict[str, str]:
    return decomposed({"code": code, "name": "tiny", "source_file": "tiny.py", "source_level": level})


def module(text: str, name: str = "tiny_module") -> Any:
    made = types.ModuleType(name)
    sys.modules[name] = made
    try:
        exec(compile(text, f"{name}.py", "exec"), vars(made))
    finally:
        del sys.modules[name]
    return made


def run_by_itself(text: str) -> None:
    """As `python file.py` does."""
    module(text).run_tests()


def composed(made: dict[str, str], folder: Path) -> None:
    """Run the composition's own test from files."""
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    before = list(sys.path)
    place = folder / "verification" / "composition_test.py"
    made_of = types.ModuleType("composition_test")
    made_of.__file__ = str(place)
    try:
        exec(compile(place.read_text(), str(place), "exec"), vars(made_of))
        torch.manual_seed(0)
        vars(made_of)["run_tests"]()
    finally:
        sys.path[:] = before
        for name in [
            name for name in sys.modules if name.partition(".")[0] in ("level_0_kernel", "original")
        ]:
            del sys.modules[name]
