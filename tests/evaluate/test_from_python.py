"""The evaluator from Python as the docs show it: in a notebook, from coroutines, in a pool of processes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelmill.evaluate import Evaluator, Options, Pair, evaluate
from tests.conftest import ROOT
from tests.evaluate.corpus import case

BLOCKS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/evaluate.md").read_text("utf-8"), re.M | re.S)
SWISH = case("X_ok_swish")
REFERENCE = SWISH.reference.replace("class Swish", "class Model").replace("super(Swish", "super(Model")
CODE = SWISH.code.replace("SwishNew", "ModelNew")


def test_the_call_and_the_coroutines_of_the_docs_work_in_a_running_event_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names: dict[str, Any] = {"reference": REFERENCE, "candidate": CODE}

    async def notebook() -> list[Any]:
        exec(BLOCKS[0], names)
        exec(BLOCKS[1], names)
        return list(await names["judge_all"](["def (:", "x = 1"]))

    found = asyncio.run(notebook())
    assert names["verdict"].verdict == "correct", names["verdict"].error
    assert capsys.readouterr().out.startswith("correct Correct, checked")
    assert [one.status for one in found] == ["PARSE_ERROR", "FORMAT_ERROR"]


@pytest.mark.heavy
def test_the_pool_of_the_docs_works(tmp_path: Path) -> None:
    script = tmp_path / "pool.py"
    script.write_text(f"reference = {REFERENCE!r}\ncandidates = [{CODE!r}, 'def (:']\n{BLOCKS[2]}")
    line = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("['correct', 'incorrect']\n", "")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_evaluator_from_before_a_fork_says_so() -> None:
    """Its replies would go to the parent."""
    with Evaluator(Options(device="cpu"), workers=1) as evaluator:
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try:
                asyncio.run(evaluator.evaluate(Pair("1", REFERENCE, CODE)))
            except BaseException as error:  # noqa: BLE001
                os.write(writing, str(error).encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 1000).decode().endswith("make one in each process")
        os.close(reading)
        os.close(writing)


def test_a_mistake_is_raised_in_a_notebook_as_anywhere() -> None:
    async def notebook() -> None:
        evaluate(REFERENCE, CODE, Options(device="cpu", tier="gpu"))

    with pytest.raises(Exception, match="needs a GPU"):
        asyncio.run(notebook())
