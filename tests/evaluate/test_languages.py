"""A language is a plug: its static rules, and the workers that build its kernels and see them launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.errors import ConfigError
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.languages import LANGUAGES, Language
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.static.examine import examine
from kernelmill.evaluate.static.language import TRITON, StaticRules
from tests.settings.test_plugins import Run, install, run

__all__ = ["run"]

TILES = StaticRules(
    package="tilelang",
    kernel=frozenset({"tilelang.jit"}),
    no_kernel="defines no @tilelang.jit kernel",
    paths={"tilelang": None, "triton": ("A10.vendor_library", "hard")},
)
IN_TILES = """\
import tilelang
import torch.nn as nn
@tilelang.jit
def double(x): pass
class ModelNew(nn.Module):
    def forward(self, x):
        return double(x)
"""
IN_TRITON = IN_TILES.replace("tilelang", "triton")


def test_what_is_a_hack_in_triton_is_the_language_in_another_and_the_other_way_round() -> None:
    assert examine(IN_TILES, None, TILES).status is None
    assert examine(IN_TILES, None, TILES).kernels == ["double"]
    assert examine(IN_TILES).status == "HACK"
    assert "A10.vendor_library" in examine(IN_TILES).error
    assert examine(IN_TRITON).status is None
    assert examine(IN_TRITON, None, TILES).status == "HACK"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import flash_attn; flash_attn.f()", "A10.vendor_library"),
        ("exec('1')", "E9.exec"),
        ("import torch; torch.relu = None", "E1.patches_torch"),
        ("tilelang.jit = None", "E7.patches_module"),
        ("import time; time.sleep(1)", "D12.sleep"),
    ],
)
def test_every_other_rule_holds_in_every_language(line: str, code: str) -> None:
    report = examine(IN_TILES + line + "\n", None, TILES)
    assert report.status == "HACK"
    assert code in report.error


def test_without_a_kernel_the_error_is_the_languages_own() -> None:
    text = "import torch.nn as nn\nclass ModelNew(nn.Module):\n    def forward(self, x): return x\n"
    assert examine(text, None, TILES).error == "defines no @tilelang.jit kernel"
    assert examine(text).error == "defines no @triton.jit kernel"


def test_triton_is_the_only_language_built_in_and_no_part_of_a_key() -> None:
    assert list(LANGUAGES) == ["triton"]
    assert LANGUAGES["triton"].static is TRITON
    assert "language" not in Options().key()
    assert Pair("1", "a", "b").key(Options()) == Pair("1", "a", "b").key(Options(language="triton"))


def test_a_language_that_nobody_has_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match=r"^unknown language trition \(did you mean triton\?\)$"):
        Evaluator(Options(device="cpu", language="trition"), workers=1)


def test_a_language_without_a_judge_on_gpus_is_refused_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LANGUAGES._loaded, "tiles", Language("tiles", TILES, (), "tiles.worker"))
    with pytest.raises(ConfigError, match="candidates in tiles cannot be judged on a GPU: take device cpu"):
        Evaluator(Options(device="cuda", language="tiles"), workers=1)
    with Evaluator(Options(device="auto", language="tiles"), workers=1) as evaluator:
        assert evaluator.tier == "interpreter"
        verdict = evaluator.static_verdict(Pair("1", "", IN_TRITON))
    assert verdict is not None
    assert (verdict.status, verdict.task["language"]) == ("HACK", "tiles")


MINI = '''
"""Kernels over numpy arrays in the tensors' own memory, launched at once."""

import ctypes
import functools

import numpy


def _array(tensor):
    assert str(tensor.dtype) == "torch.float32", tensor.dtype
    size = 1 + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))
    memory = (ctypes.c_float * size).from_address(tensor.data_ptr())
    strides = [4 * stride for stride in tensor.stride()]
    return numpy.ndarray(tuple(tensor.shape), numpy.float32, memory, strides=strides)


def kernel(function):
    @functools.wraps(function)
    def launch(*tensors):
        from kernelmill.evaluate.interpreter import Launch, observer

        name, code = function.__qualname__, function.__code__
        suppressed = observer.suppressed(function.__name__, name)
        index = observer.signature_index({"kernel": name}, name)
        grid = (1, 1, 1)
        observer.launched(Launch(function.__name__, name, code.co_filename, grid, 1, index, None, suppressed))
        if not suppressed:
            function(*map(_array, tensors))

    return launch
'''
MINI_WORKER = """
import warnings

from kernelmill.evaluate.judge import candidate, judging
from kernelmill.evaluate.judge.worker import Interpreted
from kernelmill.evaluate.judge.judging import handle


def prepare():
    judging.prepare("import mini, torch\\n@mini.kernel\\ndef f(x): x[...] = 1\\nf(torch.empty(2))")


def companion(end):
    warnings.simplefilter("ignore")
    candidate.serve(end, Interpreted())
"""
MINI_LANGUAGE = """
from kernelmill.evaluate.languages import Language
from kernelmill.evaluate.static.language import StaticRules

LANGUAGE = Language(
    "numpy on the spot",
    StaticRules("mini", frozenset({"mini.kernel"}), "defines no @mini.kernel"),
    ("minilang",),
    "mini_worker",
    environment={"TRITON_INTERPRET": "1"},
)
"""
JUDGED = '''
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
import asyncio

REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x + 1
def get_inputs():
    return [torch.rand(16, 32)]
def get_init_inputs():
    return []
"""
RIGHT = """
import torch
import mini
@mini.kernel
def scaled(x, y):
    y[...] = 2 * x + 1
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scaled(x, y)
        return y
"""
IDLE = RIGHT.replace("return y", "return 2 * x + 1")
PAIRS = {
    "right": RIGHT, "wrong": RIGHT.replace("+ 1", "+ 3"), "idle": IDLE,
    "absent": RIGHT.replace("@mini.kernel", ""), "hack": RIGHT + "exec('1')",
}

async def main():
    options = Options(device="cpu", language="mini")
    assert options.key()["language"] == ["mini", "minilang 1.0"], options.key()
    async with Evaluator(options, workers=1) as evaluator:
        for name, code in PAIRS.items():
            verdict = await evaluator.evaluate(Pair(name, REFERENCE, code))
            print(name, verdict.status, verdict.env["minilang"], verdict.task["language"], verdict.candidate.get("launched"), verdict.error)

asyncio.run(main())
'''


@pytest.mark.heavy
def test_a_language_of_a_plugin_is_judged_by_its_own_worker(tmp_path: Path, run: Run) -> None:
    site = install(
        tmp_path / "site", "minilang", {"kernelmill.languages": {"mini": "minilang:LANGUAGE"}}, MINI_LANGUAGE
    )
    (site / "mini.py").write_text(MINI)
    (site / "mini_worker.py").write_text(MINI_WORKER)
    done = run(code=JUDGED)
    assert done.returncode == 0, done.stderr
    said = {line.split()[0]: line.split(maxsplit=4)[1:] for line in done.stdout.splitlines()}
    assert {name: words[0] for name, words in said.items()} == {
        "right": "PASSED", "wrong": "INCORRECT_NUMERICAL", "idle": "HACK", "absent": "FORMAT_ERROR", "hack": "HACK",
    }, done.stdout  # fmt: skip
    assert said["right"][1:3] == ["1.0", "mini"]
    assert said["right"][3].startswith("['scaled']")
    assert said["absent"][3].endswith("defines no @mini.kernel")
