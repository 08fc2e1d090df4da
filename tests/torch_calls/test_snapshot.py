"""What a judge that serves again compares: all that it measures and compares by."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, jit

from kernelmill.evaluate.judge import tolerance
from kernelmill.torch_calls.snapshot import TOOLS, TorchSnapshot


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (time, "perf_counter"),
        (torch.cuda, "synchronize"),
        (torch.cuda, "Event"),
        (torch, "equal"),
        (torch.Tensor, "cpu"),
        (torch.testing, "assert_close"),
        (np, "sum"),
        (triton, "jit"),
        (tl, "load"),
        (jit.JITFunction, "run"),
        (autotuner.Autotuner, "run"),
        (tolerance, "compare"),
        (tolerance.Comparison, "__init__"),
    ],
)
def test_whatever_a_reference_replaces_is_seen(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    before = TorchSnapshot(TOOLS)
    assert before.changes() == []
    monkeypatch.setattr(owner, name, nothing)
    assert any(name in change for change in before.changes())


def test_the_code_of_a_function_and_a_setting_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = TorchSnapshot(TOOLS)
    monkeypatch.setattr(tolerance.compare, "__code__", nothing.__code__)
    assert "kernelmill.evaluate.judge.tolerance.compare.__code__" in before.changes()
    monkeypatch.undo()
    assert before.changes() == []
    with torch.enable_grad() if not torch.is_grad_enabled() else torch.no_grad():
        assert before.changes() == ["torch's gradients"]


def test_ordinary_work_changes_nothing() -> None:
    before = TorchSnapshot(TOOLS)
    layer = torch.nn.Linear(3, 4)
    layer(torch.randn(2, 3)).sum().backward()
    torch.testing.assert_close(torch.ones(2), torch.ones(2))
    np.linalg.inv(np.eye(3))
    torch.random.manual_seed(1)
    assert before.changes() == []
