"""What is given to torch.compile, which takes time for each operation of a call."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from kernelmill.evaluate.gpu import baselines
from kernelmill.evaluate.gpu.baselines import MOST_OPERATIONS, measure_baselines, operations_of
from kernelmill.evaluate.gpu.plan import TooSlowToTime
from kernelmill.evaluate.task.values import Call


class Recurrence(torch.nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.steps):
            x = x * 0.5
        return x


CALL = Call([torch.ones(4)], {})


def test_every_step_of_a_loop_is_an_operation() -> None:
    assert operations_of(Recurrence(0), CALL) == 0
    assert operations_of(Recurrence(17), CALL) == 17


def test_a_loop_that_would_not_be_compiled_in_time_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object, **kwargs: object) -> None:
        raise AssertionError("it is compiled")

    monkeypatch.setattr(baselines.torch, "compile", compiled)
    monkeypatch.setattr(baselines, "Clock", lambda kept: None)
    with pytest.raises(TooSlowToTime, match="1001 operations"):
        measure_baselines(Recurrence(MOST_OPERATIONS + 1), [CALL], ["compile"], nullcontext, 1)
    with pytest.raises(AssertionError, match="it is compiled"):
        measure_baselines(Recurrence(MOST_OPERATIONS), [CALL], ["compile"], nullcontext, 1)
