"""The judge of the interpreter tier, for any language: a reference and two candidate processes.

It runs the reference, its float64 oracle and the comparisons. The candidate's code runs only in the companions
of the `kernelmill.sandbox` worker that has this `handle` (`worker`, for Triton). The result is a `Record`.
Reference and candidate are both untrusted code, so both run confined, and the process that writes verdicts
trusts neither.
"""

from __future__ import annotations

import dataclasses
import random
import socket
import time
import warnings
from typing import Any

import torch

from kernelmill.evaluate.judge import candidate
from kernelmill.evaluate.judge.record import Limits, Record, Stop, record_failure
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.judge.tolerance import Policy
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.probes import battery, shapes
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.task.facts import Facts
from kernelmill.evaluate.task.fit_size import (
    INTERPRETER,
    SMALL,
    TINY,
    Picked,
    SizeLimits,
    pick,
    pick_each,
    pick_other,
    room_for,
)
from kernelmill.evaluate.task.own_size import OwnSize, own_size
from kernelmill.evaluate.task.reference import BadReference, load_reference
from kernelmill.evaluate.task.resize import has_old_shape, keeps_powers_of_two, resized
from kernelmill.sandbox import inside
from kernelmill.torch_calls.tensors import dtype_of

_SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64"}
_STEP_S = 3e-4
"""Seconds per number that the interpreter takes in a kernel that loops over them: about ten operations."""


_MOST_OWN_ELEMENTS = 1 << 24
_MOST_OWN_FLOPS = 1 << 32
"""Of the reference, which takes ten times as long for half-precision numbers: each of those counts for ten."""
_OWN_S = 1.5
_FIXED_S = 0.003
"""About what a call takes however small it is."""
_WARM_UP_REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x + x
def get_inputs():
    return [torch.rand(5, 7)]
def get_init_inputs():
    return []
"""


def prepare(warm_up: str) -> None:
    """Warm up before forking children: imports, tables, first calls.

    `warm_up` is a module in the candidates' language that launches a kernel.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    offline_models.prepare()
    candidate.warm_up(warm_up)
    picked = pick(_WARM_UP_REFERENCE, None)
    picked.reference.examine(1)
    own_size(_WARM_UP_REFERENCE, None)


def handle(request: dict[str, Any], sockets: list[socket.socket]) -> dict[str, Any]:
    """Judge `request["candidate"]` against `request["reference"]`; returns a `Record` as plain values."""
    warnings.simplefilter("ignore")
    record = Record()
    with record_failure(record):
        _judge(request, sockets, record)
    return dataclasses.asdict(record)


@dataclasses.dataclass
class _Chosen:
    """The version of the task at which a candidate is judged."""

    picked: Picked
    facts: Facts
    changes: dict[str, list[int]]
    mode: str | None


def _choose(request: dict[str, Any], limits: SizeLimits, record: Record, dice: random.Random) -> _Chosen:
    picked = pick(request["reference"], request.get("entry_point"), limits, seed=dice.getrandbits(31))
    facts = picked.reference.examine(dice.getrandbits(31))
    changes = picked.version.changes | offline_models.shrunk(request["reference"])
    record.task = _task(picked, facts, changes)
    # A GPU judges next, and needs to know the memory for the task at its own size.
    if picked.version.kind != "original" and request.get("probes") == "before_gpu":
        own = own_size(request["reference"], request.get("entry_point"))
        record.task |= {} if own is None else {"own_bytes": own.bytes}
    if facts.no_answer:
        raise Stop("UNSUPPORTED", facts.no_answer)
    return _Chosen(picked, facts, changes, "eval" if facts.random else None)


def _judge(request: dict[str, Any], sockets: list[socket.socket], record: Record) -> None:
    limits = Limits(**request.get("limits", {}))
    dice = random.Random(request["seed"])
    chosen = _choose(request, INTERPRETER, record, dice)
    first = Session(sockets[0], record, limits, inside.companions[0])
    first.policy = Policy(tf32=bool(request.get("tf32")))
    inside.server.doing("loads the candidate")
    try:
        _load(first, request, record)
        trial = _trial(first, chosen, record, dice, request)
        degenerate = trial.degenerate()
        for limits_of in (SMALL, TINY):
            if degenerate and chosen.picked.size.elements > limits_of.elements:
                # Large sums saturate what follows them: a smaller version may tell more.
                chosen = _choose(request, limits_of, record, dice)
                trial = _trial(first, chosen, record, dice, request)
                degenerate = trial.degenerate()
        trial.probes = request.get("probes", "all")
        if degenerate:
            raise Stop(
                "UNSUPPORTED",
                "the reference's output does not depend on its inputs: any candidate would pass",
            )
        battery.run(trial)
        if chosen.changes and trial.probes == "all":
            _at_own_size(request, trial, chosen)
    except Stop as stop:
        failure, goes_on = stop, False
    else:  # an audit continues after a failure, which is in the record
        failure, goes_on = Stop(record.status, record.error), True
    sizes = {old: new for old, new in chosen.changes.values() if old > 1}
    code = None
    if failure.status not in ("PASSED", "HACK", "UNSUPPORTED"):
        code = resized(request["candidate"], sizes)
    own_sizes = failure.status == "INCORRECT_SHAPE" and has_old_shape(failure.error, sizes)
    if code is not None and not own_sizes:
        own_sizes = not keeps_powers_of_two(request["candidate"], sizes) or _right(
            code, request["class"], chosen, limits, dice
        )
    if own_sizes:
        raise Stop(
            "UNSUPPORTED",
            f"the task was shrunk ({_told(chosen.changes)}), and the candidate is made for its own sizes: {failure.error}",
        )
    if not goes_on:
        raise failure
    if code is None and not first.ended:  # otherwise its sizes were looked at, and it is wrong
        _other_shapes(request, chosen, first, record, dice)


def _at_own_size(request: dict[str, Any], trial: Trial, chosen: _Chosen) -> None:
    """Look at a task that was shrunk at its own size: with one call, if that takes seconds, or without numbers."""
    if offline_models.names_in(request["reference"]):
        trial.record.check("own_size", "skip", "its models have other sizes here")
        return
    own = own_size(request["reference"], request.get("entry_point"))
    if own is not None and _is_quick(trial, chosen, own):
        try:
            reference = load_reference(request["reference"], request.get("entry_point"))
            trial.session.build(reference, trial.seed(), chosen.mode)
            done = shapes.once_at_own_size(trial, own)
        except BadReference as error:
            trial.record.check("own_size", "skip", str(error)[:200])
            return
        if done:
            return
    shapes.without_numbers(trial, own)


def _is_quick(trial: Trial, chosen: _Chosen, own: OwnSize) -> bool:
    """Whether a call at the task's own size is a matter of seconds, if its time grows with the elements."""
    if own.flops > _MOST_OWN_FLOPS or own.elements > _MOST_OWN_ELEMENTS:
        return False
    one = min(check.ms or 0.0 for check in trial.record.checks if check.name.startswith("seed_")) / 1e3
    return max(0.0, one - _FIXED_S) * own.elements / max(chosen.picked.size.elements, 1) < _OWN_S


def _load(session: Session, request: dict[str, Any], record: Record) -> None:
    before = time.monotonic()
    session.load(request["candidate"], request["class"])
    record.check("import", "pass", ms=(time.monotonic() - before) * 1e3)


def _trial(
    session: Session, chosen: _Chosen, record: Record, dice: random.Random, request: dict[str, Any]
) -> Trial:
    before = time.monotonic()
    size = chosen.picked.size
    session.own_size = not chosen.changes
    session.enough_s = _STEP_S * max(size.elements, size.largest, size.flops / 2)
    session.build(chosen.picked.reference, dice.getrandbits(31), chosen.mode)
    record.check("init", "pass", f"weights: {session.drop_in}", ms=(time.monotonic() - before) * 1e3)
    trial = Trial(session, record, chosen.facts, dice, bool(request.get("audit")))
    trial.wants_trace = bool(request.get("traces"))
    trial.prepare()
    return trial


def _other_shapes(
    request: dict[str, Any],
    chosen: _Chosen,
    session: Session,
    record: Record,
    dice: random.Random,
) -> None:
    """Try a new model of the candidate's at another shape. This changes the grade, not the verdict."""
    inside.server.doing("probe odd_shape")
    room, code = room_for(chosen.picked.size), chosen.picked.version.text
    entry = request.get("entry_point")
    picked = pick_other(code, entry, room, same_model=False, seed=dice.getrandbits(31))
    picked = picked or pick_other(code, entry, room, seed=dice.getrandbits(31))
    if picked is None:
        record.check("odd_shape", "skip", "the reference runs at no other shape that was tried")
        return
    silent = Record()
    session.record, session.own_size = silent, False

    def answer(one: Picked, name: str) -> shapes.Fit:
        session.build(one.reference, dice.getrandbits(31), chosen.mode)
        trial = Trial(session, silent, chosen.facts, dice, audit=True)
        return shapes.other_shape(trial, one.version.told(), name)

    fits: dict[str, shapes.Fit] = {}
    together: shapes.Fit = "fails"
    try:
        together = answer(picked, "odd_shape")
        if together != "right":  # find out which of the sizes fails
            for one in pick_each(code, entry, room, seed=dice.getrandbits(31)):
                fits[one.version.told()] = answer(one, f"odd_shape:{one.version.told()}")
    except BadReference as error:
        # It ran at this shape when it was picked, by luck of the draw: an index was in range then.
        record.check("odd_shape", "skip", f"the reference does not always run at this shape: {error}"[:300])
        return
    except Stop as stop:
        if stop.status == "UNSUPPORTED":
            record.check("odd_shape", "skip", stop.error[:300])
            return
        silent.check("odd_shape", "fail", stop.error[:300])
    record.checks += silent.checks
    for flag in silent.flags:
        record.flag(flag.code, flag.severity, **flag.evidence)
    _grade_shapes(record, picked, together, fits)


def _grade_shapes(record: Record, picked: Picked, together: shapes.Fit, fits: dict[str, shapes.Fit]) -> None:
    """Grade a candidate as shape-specialised if it is wrong at any other size, or fails at all of them.

    Rejecting some sizes is allowed: a head dimension may have to be a power of two. Leaving out a tail is
    wrong.
    """
    record.grade.shape_specialised = False
    if together == "right":
        return
    by_fit = {how: [what for what, fit in fits.items() if fit == how] for how in ("right", "wrong", "fails")}
    evidence = {how: sizes for how, sizes in by_fit.items() if sizes}
    if by_fit["right"] and not by_fit["wrong"] and together == "fails":
        record.flag("C14.refuses_sizes", "info", **evidence)
        return
    record.grade.shape_specialised = True
    record.flag("C14.shape_specialised", "soft", shape=picked.version.told(), **evidence)
    if record.grade.robust:
        record.grade.robust = False


def _task(picked: Picked, facts: Facts, changes: dict[str, list[int]]) -> dict[str, Any]:
    task: dict[str, Any] = {"version": picked.version.kind, "elements": picked.size.elements}
    given = picked.reference.inputs(0).tensors()
    kinds = sorted({dtype_of(t) for t in given if t.is_floating_point()})
    if kinds:
        task["dtype"] = "+".join(_SHORT.get(kind, kind) for kind in kinds)
    if changes:
        task["shrunk"] = changes
    if facts.oracle_note:
        task["oracle"] = facts.oracle_note
    if facts.random:
        task["mode"] = "eval: the reference is random in training"
    return task


def _told(changes: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} {old} to {new}" for name, (old, new) in changes.items())[:200]


def _right(code: str, class_name: str, chosen: _Chosen, limits: Limits, dice: random.Random) -> bool:
    """Whether the code passes all probes, in a new process."""
    end, clock = inside.server.new_companion()
    silent = Record()
    session = Session(end, silent, limits, clock)
    session.own_size = False
    trial = Trial(session, silent, chosen.facts, dice, audit=False)
    try:
        session.load(code, class_name)
        session.build(chosen.picked.reference, dice.getrandbits(31), chosen.mode)
        trial.prepare()
        battery.run(trial)
    except Stop:
        return False
    finally:
        end.close()
        clock.close()
    return True
