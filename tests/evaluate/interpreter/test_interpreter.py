"""Each case of cases_*.py is a property of the interpreter; its kernels run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.evaluate.interpreter.names import FILES, cases_of

pytest.importorskip("torch")
pytest.importorskip("triton")


@pytest.mark.parametrize(
    ("file", "case"), [pytest.param(file, case, id=case) for file in FILES for case in cases_of(file)]
)
def test_the_interpreter_holds(outcomes: dict[str, str], file: str, case: str) -> None:
    assert not outcomes[f"{file}:{case}"], outcomes[f"{file}:{case}"]


def test_importing_without_the_environment_variable_is_refused() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", "import kernelmill.evaluate.interpreter"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "TRITON_INTERPRET" in done.stderr
