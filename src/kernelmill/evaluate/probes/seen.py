"""What every probe does with an answer: report accesses and races, and say why nobody of the candidate's computed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Stop
from kernelmill.evaluate.judge.tolerance import Comparison
from kernelmill.evaluate.judge.torch_share import HOST_LEAST
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.sandbox import inside


def begin(probe: Callable[..., Any]) -> None:
    inside.server.doing(f"probe {probe.__name__}")


def out_of_bounds(trial: Trial, returned: Returned) -> None:
    observed = returned.reply["observed"]
    if not observed["oob_count"]:
        return
    first = observed["oob"][0]
    text = (
        f"{first['kind']} out of bounds in {first['kernel']}, program {first['program']}: {first['lanes']} of "
        f"{first['of']} lanes, {first['beyond']} bytes from {first['argument']}"
    )
    trial.record.check("oob", "fail", text)
    trial.record.flag("C6.out_of_bounds", "soft", count=observed["oob_count"], first=text)
    if not trial.audit:
        raise Stop("RUNTIME_ERROR", text)
    if trial.record.status == "PASSED":
        trial.record.status, trial.record.error = "RUNTIME_ERROR", text


def out_of_order(trial: Trial, returned: Returned) -> None:
    """Report races between programs of one launch, and work on a side stream that is never joined.

    Only the interpreter detects these.
    """
    observed = returned.reply["observed"]
    if observed.get("unjoined"):
        trial.hack("D1.side_stream", launches=observed["unjoined"])
    if not observed.get("race_count"):
        return
    first = observed["races"][0]
    earlier, later = (tuple(program) if program else "others" for program in first["programs"])
    text = (
        f"race: {first['kind']} in {first['kernel']}, programs {earlier} and {later}, "
        f"{first['offset']} bytes into {first['argument']}"
    )
    trial.record.check("races", "fail", text)
    trial.record.flag("C19.race", "soft", count=observed["race_count"], first=text)
    trial.fail(Comparison(False, "INCORRECT_NUMERICAL", detail=text))


def code_of(returned: Returned) -> str:
    if not returned.launched:
        return "A1.no_kernel_launched"
    return "A8.host_computes" if returned.reply["work"]["host"] >= HOST_LEAST else "A3.torch_computes"
