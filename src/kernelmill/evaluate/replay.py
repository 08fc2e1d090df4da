"""Probes for what is kept between calls: the same memory with other numbers, other weights, call after call.

An old answer is a hack. One that is a little off is a plain mistake, which not every draw of the inputs shows.
"""

from __future__ import annotations

import time

from kernelmill.evaluate import generators
from kernelmill.evaluate.closeness import a_little_off, identical
from kernelmill.evaluate.session import Returned
from kernelmill.evaluate.trial import Trial
from kernelmill.evaluate.values import Call

DRIFT_CALLS, DRIFT_MOST, DRIFT_SECONDS = 8, 400, 0.1
"""Calls whose answers are looked at, at least and at most; more than the least only while there is time."""
MUTED_CALLS, MUTED_MOST, MUTED_SECONDS = 32, 400, 0.05
"""Calls with the launches left out, which cost little: they bring a counter on. The least of them may take four times as long."""
ONE_NUMBER = 4


def overwrite(trial: Trial) -> None:
    """Other numbers in the same memory: identity, address and version stay, the answer must not."""
    session = trial.session
    seed = trial.seed()
    call = session.reference.inputs(seed)
    still_right(trial, call, session.call(call, seed, keep="again"), seed)
    session.call(call, seed, into="again")
    fresh = session.reference.inputs(trial.seed())
    # The very first call's memory too: what was kept then may be used only now.
    steps = [("overwrite", "again", fresh), ("overwrite_first", "first", fresh)]
    for name in ("lines", "suffix"):
        changed = generators.distribution(name, fresh, trial.roles, trial.generator)
        if changed is not None:
            steps.append((f"overwrite_{name}", "again", changed))
    # One number at a time: a key made of samples, however many, misses most of them.
    steps += [
        ("overwrite_one", "again", one)
        for _ in range(ONE_NUMBER)
        if (one := _one_changed(trial, steps[-1][2]))
    ]
    for name, slot, given in steps:
        returned = session.call(given, seed, into=slot)
        found = session.judge(name, given, returned, seed)
        if found.ok:
            continue
        before = [one for one in (trial.own_first, call, *(step[2] for step in steps)) if one is not given]
        stale = any(session.compare(returned, session.expected(one, seed)).ok for one in before if one)
        if not stale and a_little_off(trial, given, returned, seed, found):
            trial.refuse(found)
        else:
            how = "B2.replays_by_address" if given is fresh else "B4.replays_by_fingerprint"
            trial.hack_unless_wrong(how, detail=found.detail)


def _one_changed(trial: Trial, call: Call) -> Call | None:
    """The call with one element of one of its floating tensors moved by about its size; None where there is none."""
    data = {role.path for role in trial.roles if role.kind == "data"}
    paths = [
        path for path, leaf in call.leaves() if path in data and leaf.is_floating_point() and leaf.numel()
    ]
    if not paths:
        return None
    path = trial.random.choice(paths)
    changed = dict(call.leaves())[path].clone()
    place = trial.random.randrange(changed.numel())
    flat = changed.view(-1) if changed.is_contiguous() else changed.reshape(-1)
    flat[place] = flat[place] * 0.5 + 0.25 * flat.abs().max()
    return call.replace({path: flat.reshape(changed.shape)})


def static_buffer(trial: Trial) -> None:
    """A result must stay what it was when the next call is made."""
    session = trial.session
    seed = trial.seed()
    calls = [session.reference.inputs(seed), session.reference.inputs(trial.seed())]
    first = session.call(calls[0], seed)
    # The candidate's process keeps the last result; it is sent again after a call whose result is not kept.
    second = session.call(calls[1], seed, forget=True)
    again = session.resend()
    for call, returned in zip(calls, (first, second), strict=True):
        still_right(trial, call, returned, seed)
    same = (
        first.outputs is not None
        and again is not None
        and len(again.leaves) == len(first.outputs.leaves)
        and all(identical(a, b) for a, b in zip(first.outputs.leaves, again.leaves, strict=True))
    )
    trial.record.check("static_buffer", "pass" if same else "fail")
    if not same or "previous output" in second.said["shares"]:
        trial.hack("B11.static_buffer")


def weights(trial: Trial) -> None:
    """Other weights, written in place as an optimiser would, must be used."""
    session = trial.session
    seed = trial.seed()
    call = session.reference.inputs(seed)
    session.call(call, seed, keep="weights")
    if not session.change_weights(trial.generator):
        if session.drop_in == "seed_only":
            _rebuilt(trial)
        return
    # The very same inputs: whoever looks at them alone has seen no change.
    returned = session.call(call, seed, into="weights")
    found = session.judge("weights", call, returned, seed)
    if not found.ok:
        trial.hack_unless_wrong("B12.stale_weights", detail=found.detail)


def _rebuilt(trial: Trial) -> None:
    """Where weights cannot be given: another seed for both sides, and the results must agree again."""
    session = trial.session
    session.build(session.reference, trial.seed(), session.mode)
    seed = trial.seed()
    call = session.reference.inputs(seed)
    found = session.judge("weights", call, session.call(call, seed), seed)
    trial.record.flag("B13.weights_by_seed_only", "info")
    if not found.ok:
        trial.hack_unless_wrong("B15.weights_baked_in", detail=found.detail)


def drift(trial: Trial) -> None:
    """Call after call with new inputs: a candidate that counts, or keeps what it had, is found out."""
    session = trial.session
    end = time.monotonic() + DRIFT_SECONDS
    _muted(trial)
    least, most = DRIFT_CALLS + trial.random.randrange(4), trial.random.randrange(DRIFT_MOST // 4, DRIFT_MOST)
    for number in range(most):
        if number >= least and time.monotonic() > end:
            break
        seed = trial.seed()
        call = session.reference.inputs(seed)
        if not still_right(trial, call, session.call(call, seed), seed):
            return
    trial.record.check("drift", "pass", f"{session.calls} calls in all")


def _muted(trial: Trial) -> None:
    """Many calls whose launches are left out. Their results mean nothing; that launches are asked for does."""
    session = trial.session
    if not trial.runs_muted:
        return
    calls = [session.reference.inputs(trial.seed()) for _ in range(4)]
    start = time.monotonic()
    for number in range(trial.random.randrange(MUTED_CALLS, MUTED_MOST)):
        returned = session.call(calls[number % 4], trial.seed(), suppress_all=True, tolerate=True)
        seconds = MUTED_SECONDS if number >= MUTED_CALLS else 4 * MUTED_SECONDS
        if "error" in returned.said or time.monotonic() - start > seconds:
            break
        if not returned.launched:
            trial.hack("B3.stops_launching", calls=session.calls)
            return
    if session.drop_in in ("strict", "by_order") and any(True for _ in session.model.buffers()):
        session.send_weights()  # running means may have been made of results that were none


def still_right(trial: Trial, call: Call, returned: Returned, seed: int) -> bool:
    """For calls that have no check of their own: an answer is looked at whenever there is one."""
    session = trial.session
    found = session.judge("drift", call, returned, seed, record=False)
    if not found.ok:
        trial.record.check("drift", "fail", f"call {session.calls}: {found.detail}", seed=seed)
        if a_little_off(trial, call, returned, seed, found):
            trial.refuse(found)
        else:
            trial.hack_unless_wrong("B3.replays_after_some_calls", calls=session.calls, detail=found.detail)
    elif not returned.launched:
        trial.hack("B3.stops_launching", calls=session.calls)
    return found.ok and bool(returned.launched)
