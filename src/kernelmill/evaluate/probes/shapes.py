"""Probes of shapes: other memory layouts, other sizes, and the task's own size if it was shrunk."""

from __future__ import annotations

from typing import Literal

from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import TOO_SLOW, Stop
from kernelmill.evaluate.judge.torch_share import who_computed
from kernelmill.evaluate.judge.trial import Trial, top
from kernelmill.evaluate.probes.seen import begin, out_of_bounds
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.own_size import OwnSize

Fit = Literal["right", "wrong", "fails"]
MOST_OWN_BYTES = 1 << 30
OWN_CALL_S = 4.0


def noncontiguous(trial: Trial) -> None:
    """Call with the same kind of inputs in another memory layout."""
    call = generators.noncontiguous(trial.session.reference.inputs(trial.seed()))
    if call is None:
        return
    seed = trial.seed()
    returned = trial.session.call(call, seed, tolerate=True)
    if "error" in returned.reply:
        trial.record.check("noncontiguous", "fail", returned.trouble[:200])
    elif trial.session.judge("noncontiguous", call, returned, seed).ok and returned.launched:
        return
    trial.record.flag("C14.ignores_strides", "soft")
    trial.record.grade.robust = False


def other_shape(trial: Trial, what: str, name: str) -> Fit:
    """Call once at another shape, in a separate process: right, wrong, or fails with an error."""
    seed = trial.seed()
    call = trial.session.reference.inputs(seed)
    returned = trial.session.call(call, seed, tolerate=True)
    if "error" in returned.reply:
        if returned.reply["error"]["slow"]:
            raise Stop("UNSUPPORTED", f"{TOO_SLOW}: {what}")
        trial.record.check(name, "fail", f"{what}: {returned.trouble[:200]}", seed=seed)
        return "fails"
    ok = trial.session.judge(name, call, returned, seed).ok
    if ok and not returned.launched:
        trial.record.check(f"{name}:launches", "fail", f"{what}: no kernel of its own is launched")
        return "fails"
    if returned.reply["observed"]["oob_count"]:
        first = returned.reply["observed"]["oob"][0]
        trial.record.flag(
            "C6.out_of_bounds", "soft", first=f"{first['kind']} in {first['kernel']}", shape=what
        )
        return "wrong"
    return "right" if ok else "wrong"


def once_at_own_size(trial: Trial, own: OwnSize) -> bool:
    """Call once at the task's own size, if the task was shrunk. Returns whether the call came back in time."""
    begin(once_at_own_size)
    session, seed = trial.session, trial.seed()
    call, limit = session.reference.inputs(seed), session.call_s
    session.call_s = min(limit, OWN_CALL_S)
    try:
        returned = session.call(call, seed, tolerate=True, counts=True)
    except Stop as stop:
        if stop.status not in ("TIMEOUT", "UNSUPPORTED"):
            raise
        trial.record.check("own_size", "skip", stop.error[:200])
        session.ended = True
        return True
    finally:
        session.call_s = limit
    if "error" in returned.reply and (returned.reply["error"]["slow"] or returned.reply["error"]["memory"]):
        return False
    if "error" in returned.reply:
        trial.record.check("own_size", "fail", returned.trouble[:200], seed=seed)
        raise Stop("RUNTIME_ERROR", f"at the task's own size: {returned.trouble}")
    found = session.judge("own_size", call, returned, seed)
    if not found.ok:
        trial.fail(found)
    out_of_bounds(trial, returned)
    _own_kernels_at_own_size(trial, returned, own)
    return True


def without_numbers(trial: Trial, own: OwnSize | None) -> None:
    """Call once at the task's own size, without numbers and with launches suppressed, if the task was shrunk.

    Who computes the result must not depend on the size. What it computes there is not known.
    """
    begin(without_numbers)
    if own is None or own.bytes > MOST_OWN_BYTES:
        why = "the reference does not run without numbers" if own is None else f"{own.bytes:,} bytes"
        trial.record.check("own_size", "skip", why)
        return
    returned = trial.session.hollow(own.init, own.call, trial.seed())
    if returned.trouble:  # without numbers there may be no index that is valid, and no size that fits
        trial.record.check("own_size", "skip", returned.trouble[:200])
        return
    trial.record.check("own_size", "pass", "without numbers")
    _own_kernels_at_own_size(trial, returned, own)


def _own_kernels_at_own_size(trial: Trial, returned: Returned, own: OwnSize) -> None:
    work = returned.reply["work"]
    covered = who_computed(work, own.work, own.largest, own.largest) if returned.launched else "no launch"
    if covered:
        trial.record.check("own_size_kernels", "fail", covered)
        code = "A3.torch_computes" if returned.launched else "A1.no_kernel_launched"
        trial.hack(code, during="own_size", found=covered, torch=top(returned))
