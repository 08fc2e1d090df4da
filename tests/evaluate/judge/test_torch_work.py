"""One candidate on its way through the tiers: which word counts in the end."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from kernelmill.evaluate.evaluation import Evaluation
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Check, Flag, Grade, Status
from kernelmill.sandbox import Reply
from kernelmill.sandbox.reply import make_reply


def work(status: Status, shrunk: bool) -> Evaluation:
    """As the interpreter has left it."""
    one = Evaluation(Pair("x", "reference", "candidate"), Options(device="cpu"))
    one.verdict.set_status(status)
    one.verdict.checks.append(Check("seed_0", "pass" if status == "PASSED" else "fail"))
    if shrunk:
        one.verdict.task["shrunk"] = {"ROWS": [4096, 32]}
    return one


def said(status: Status, times: dict[str, Any] | None = None) -> Reply:
    """What a judge on a GPU found."""
    record: dict[str, Any] = {
        "status": status,
        "error": "",
        "checks": [dataclasses.asdict(Check("seed_0", "pass"))],
        "flags": [],
    }
    record |= {
        "grade": dataclasses.asdict(Grade()),
        "kernelbench_compat": {},
        "task": {"version": "original"},
        "kernels": ["k"],
    }
    record |= {"signatures": [], "new_judge": False, "times": times or {}}
    return make_reply("ok", result=record, seconds=1.0)


@pytest.mark.parametrize("status", ["INCORRECT_SHAPE", "NONFINITE", "RUNTIME_ERROR", "TIMEOUT"])
def test_who_fails_on_a_shrunk_task_is_judged_by_the_gpu_and_called_made_for_its_shape(
    status: Status,
) -> None:
    one = work(status, shrunk=True)
    assert one.failed_shrunk()
    one.on_gpu(said("PASSED"), 1)
    assert one.verdict.verdict == "correct"
    assert one.verdict.grade.shape_specialised is True
    assert [flag.code for flag in one.verdict.flags] == ["C14.shape_specialised"]


def test_who_fails_there_too_is_what_the_gpu_says() -> None:
    one = work("INCORRECT_SHAPE", shrunk=True)
    one.on_gpu(said("INCORRECT_NUMERICAL"), 1)
    assert (one.verdict.verdict, one.verdict.status) == ("incorrect", "INCORRECT_NUMERICAL")


@pytest.mark.parametrize(
    ("status", "shrunk"),
    [
        ("INCORRECT_SHAPE", False),
        ("HACK", True),
        ("PARSE_ERROR", True),
        ("COMPILE_ERROR", True),
        ("PASSED", True),
    ],
)
def test_no_other_failure_is_asked_twice(status: Status, shrunk: bool) -> None:
    assert not work(status, shrunk).failed_shrunk()


def test_what_passes_small_and_on_the_gpu_is_not_made_for_its_shape() -> None:
    one = work("PASSED", shrunk=True)
    one.verdict.flags.append(Flag("C10.fragile", "soft", {}))
    one.on_gpu(said("PASSED"), 1)
    assert not one.verdict.grade.shape_specialised
    assert [flag.code for flag in one.verdict.flags] == ["C10.fragile"]
