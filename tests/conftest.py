"""What the tests share: rows to run on, a clean environment, and the command line as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill import config

ROOT = Path(__file__).resolve().parents[1]
MODULE = """import torch
import torch.nn as nn


class Scale{n}(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor + {n}


def get_inputs():
    return [torch.rand([4, 4])]


def get_init_inputs():
    return [[], {{'factor': 2.0}}]
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No key, no token and no setting of the person who runs the tests reaches them; each runs in its own folder."""
    for name in list(os.environ):
        if name.startswith("KERNELMILL_") or name in (*config.OTHER_VARIABLES, "TEST_MODE", "DATASET_PATH"):
            monkeypatch.delenv(name)
    for name in ("FILTERED_DATASET_PATH", "SYNTHETIC_DATASET_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    config.environment.cache_clear()
    yield
    config.environment.cache_clear()


def evals_row(n: int, reward: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """An evals row in the order of the schema; `n` makes its module one of a kind."""
    code = MODULE.format(n=n)
    return {
        "example_id": n,
        "prompt": [{"role": "user", "content": f"Write Scale{n} in Triton."}],
        "completion": [{"role": "assistant", "content": f"<answer>kernel {n}</answer>"}],
        "task": "kernelbook",
        "reward": reward,
        "generation_ms": 1.5,
        "scoring_ms": 2.0,
        "total_ms": 3.5,
        "info": {"module_name": f"Scale{n}", "python_code": code, "triton_code": "kernel"},
        "answer": "kernel",
        "speedup_reward": reward,
        "num_turns": 1.0,
        "oai_tools": None,
        **more,
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def mill(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kernelmill …` as a process in the test's folder."""

    def run(*arguments: object, env: dict[str, str] | None = None, timeout: float = 120, **more: Any) -> Any:
        return subprocess.run(
            command(*arguments), cwd=more.pop("cwd", tmp_path), env={**os.environ, **(env or {})},
            capture_output=True, text=True, timeout=timeout, **more,
        )  # fmt: skip

    return run


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kernelmill", *map(str, arguments)]
