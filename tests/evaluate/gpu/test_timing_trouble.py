"""What goes wrong while a candidate is timed: who has passed loses the times at most, and who was disturbed is judged again."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelmill.evaluate.gpu import judge as gpu_judge
from kernelmill.evaluate.gpu.plan import TooSlowToTime
from kernelmill.evaluate.judge.record import TOO_SLOW, Stop

SHORT = "torch.OutOfMemoryError: CUDA out of memory"


def timed(
    monkeypatch: pytest.MonkeyPatch, before: Exception | None, exclusive: Exception | None
) -> dict[str, Any]:
    """With an error while timing is prepared, on a shared GPU, or in the exclusive turn."""

    class Watch:
        def __init__(self, trial: Any) -> None:
            if before is not None:
                raise before

        def measure(self, budget: float) -> None:
            if exclusive is not None:
                raise exclusive

        def results(self) -> dict[str, Any]:
            return {"regime": "device"}

    monkeypatch.setattr(gpu_judge, "Stopwatch", Watch)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    session = SimpleNamespace(exclusive=False, computing=lambda cap: nullcontext())
    found: dict[str, Any] = gpu_judge._timed(
        cast(Any, None), cast(Any, session), 0.1, lambda mark: None, dict
    )
    assert session.exclusive is False
    return found


def test_who_is_timed_without_trouble_has_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert timed(monkeypatch, None, None) == {"regime": "device"}


@pytest.mark.parametrize(
    "error", [Stop("TIMEOUT", "no answer"), Stop("UNSUPPORTED", TOO_SLOW), TooSlowToTime("a call takes 9 s")]
)
def test_who_does_not_end_in_its_turn_alone_is_untimed(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert "untimed" in timed(monkeypatch, None, error)


def test_who_is_late_beside_others_is_judged_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stop, match="no answer"):
        timed(monkeypatch, Stop("TIMEOUT", "no answer"), None)


@pytest.mark.parametrize("in_its_turn", [False, True])
def test_short_memory_while_timing_is_not_held_against_the_times(
    monkeypatch: pytest.MonkeyPatch, in_its_turn: bool
) -> None:
    """The candidate is judged again with more room, not published without times."""
    errors = [None, Stop("UNSUPPORTED", SHORT)]
    with pytest.raises(Stop, match="out of memory"):
        timed(monkeypatch, *(errors if in_its_turn else reversed(errors)))


def test_a_wrong_answer_while_timed_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stop, match="forged"):
        timed(monkeypatch, None, Stop("HACK", "forged"))
