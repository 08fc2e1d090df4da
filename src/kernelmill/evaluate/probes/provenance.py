"""Who computed the result is established outside the candidate's process: its first call is recorded there as a
program, and another process, which never loads the candidate, runs the program from the judge's own inputs.

What the candidate computes without being recorded (torch with its modes off, NumPy on shared memory, a thread) is
not in the program, whose results are then wrong.

A program may be another one for other values: code that reads sizes or counts from a tensor, or branches on one.
It is then recorded again for these. What differs has to follow from what the program itself reads: for other inputs
of which it reads the same, the new program has to be right too. So what carries data from the inputs to the output
has to be computed by the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Stop
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.replaying import Program
from kernelmill.evaluate.judge.tolerance import Comparison
from kernelmill.evaluate.judge.trial import Trial, shapes_of
from kernelmill.evaluate.probes.replay import still_right
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import Call, Outputs
from kernelmill.evaluate.trace.kernel_origin import strange_kernel
from kernelmill.evaluate.trace.steps import CAPTURED_BEFORE
from kernelmill.sandbox import inside

_IN_PERSON = 0.5
"""How often the candidate is asked what its program has answered."""
_HERE_AND_THERE = 3
_A_WORD_FOR = 256
"""Numbers in the outputs for each word by which a program's recordings may differ, if no other inputs can be found of
which it reads the same."""
_WORD = 32
_LIMITS = ("TIMEOUT", "UNSUPPORTED", "OOM", "MemoryError", "OutOfMemoryError", "TooSlow", "Unsupported")
"""Errors of a program that say nothing against it."""


def first_call(trial: Trial, call: Call, seed: int, returned: Returned) -> Returned:
    """Run the program of the candidate's first call on the same inputs: what is observed of it counts."""
    session, record, recording = trial.session, trial.record, returned.recording
    if recording is None:
        if session.traces and returned.outputs is not None:
            trial.unrecordable = "its call was not recorded"
        return returned
    if recording.trouble:
        trial.unrecordable = recording.trouble
        record.check("replay", "skip", f"it cannot be recorded: {recording.trouble}")
        return returned
    if not _its_own_kernels(trial, recording):
        return returned
    trial.program, trial.first = _open(trial), recording
    trouble = trial.program.load(recording)
    same = Returned(None, trouble, {}, 0.0) if trouble else trial.program.call(call, seed, look=True)
    if same.outputs is None:
        return _does_not_run(trial, recording, returned, same.trouble)
    mine, its = (session.comparison(call, one, seed) for one in (returned, same))
    trial.program.read = same.reply["read"]
    told = "bit for bit" if _equal(same.outputs, returned.outputs) else "with other roundings"
    if mine.ok and (not its.ok or (told != "bit for bit" and _repeats(trial, call, seed, same))):
        its = (
            its
            if not its.ok
            else Comparison(False, detail="its own answer has other bits than its program's")
        )
        _unseen_work(trial, its, recording)
    # A wrong candidate's program is as wrong: that is told of the candidate.
    does = its.ok or not mine.ok
    record.check("replay", "pass" if does else "fail", told if does else its.detail, seed=seed)
    trial.program.shapes = shapes_of(call)
    if its.ok and not recording.reads and not trial.shapes_vary:
        names = {key: str(kernel.get("qualname")) for key, kernel in recording.trace["kernels"].items()}
        trial.launches = Counter((names.get(one["kernel"], ""), one["programs"]) for one in same.all_launched)
    # A program has one stream.
    same.reply["observed"]["unjoined"] = returned.reply["observed"].get("unjoined")
    return same


def _its_own_kernels(trial: Trial, recording: Recording) -> bool:
    """Whether the program's kernels are in the candidate's source, or in that of an installed package."""
    name, trouble = strange_kernel(recording.trace["kernels"], trial.session.code)
    if trouble == "another text":
        trial.hack("A16.other_text", kernel=name)
    if trouble:
        trial.unrecordable = f"the kernel {name} is not in the candidate's source as it was recorded"
        trial.record.check("replay", "skip", trial.unrecordable)
    return not trouble


def _open(trial: Trial) -> Program:
    """A process for the candidate's programs. It ends with the judge's request."""
    end, clock = inside.server.new_companion()
    return Program(trial.session.for_programs(end, clock), trial.session)


def _does_not_run(trial: Trial, recording: Recording, returned: Returned, trouble: str) -> Returned:
    record, trial.program = trial.record, None
    if name := recording.unresolved(trouble):
        trouble = (
            f"NotTheLanguage: a kernel uses {name}, which is no kernel and no tl.constexpr: Triton's compiler "
            "does not resolve it"
        )
    if trouble.startswith("NotTheLanguage: "):
        text = trouble.removeprefix("NotTheLanguage: ")
        record.check("replay", "fail", text)
        if not trial.audit:
            raise Stop("COMPILE_ERROR", text)
    else:
        record.check("replay", "skip", f"its program does not run by itself: {trouble}"[:300])
    trial.unrecordable = f"its program does not run by itself: {trouble}"[:300]
    return returned


def ask(trial: Trial, call: Call, seed: int) -> Returned:
    """The answer to other values of the inputs: the program's, or the candidate's own if both are wrong."""
    session, program = trial.session, fitting(trial, call, seed)
    if program is None:
        return session.call(call, seed, tolerate=True, counts=True)
    returned = program.call(call, seed)
    found = session.comparison(call, returned, seed)
    # What a program does that has read something else is not what the candidate does.
    another = bool(program.recording.reads) and returned.reply.get("read") != program.read
    if found.ok and not another:
        _in_person(trial, call, seed)
        return returned
    if program.recording.reads:
        again = _recorded_again(trial, program, call, seed)
        if again is not None:
            returned, found = again, session.comparison(call, again, seed)
        if found.ok:
            return returned
    mine = session.call(call, seed, tolerate=True)
    if trial.program is not None and session.comparison(call, mine, seed).ok:
        if returned.outputs is None and returned.trouble.partition(":")[0] in _LIMITS:
            _cannot_tell(trial, f"its program fails for other inputs: {returned.trouble}")
        else:
            _unseen_work(trial, found, program.recording)
    return mine


def fitting(trial: Trial, call: Call, seed: int) -> Program | None:
    """The program, recorded again if this call has other shapes. It has to be right for other numbers, too."""
    program = trial.program
    if program is None or program.shapes == shapes_of(call):
        return program
    if _recorded_again(trial, program, call, seed) is None:
        _cannot_tell(trial, "its program cannot be had for other shapes")
        return None
    other = next(filter(trial.accepted, _similar(trial, call)), None)
    if other is None:
        return program
    session = trial.session
    found = session.comparison(other, program.call(other, seed), seed)
    if not found.ok and session.comparison(other, session.call(other, seed, tolerate=True), seed).ok:
        _unseen_work(trial, found, program.recording)
    return trial.program


def _cannot_tell(trial: Trial, why: str) -> None:
    """From here on there is no program, so the verdict is at best inconclusive."""
    trial.program, trial.unrecordable = None, trial.unrecordable or why[:300]


def _in_person(trial: Trial, call: Call, seed: int) -> None:
    """Ask the candidate now and then what its program has answered: the right answer has to be its own too."""
    if trial.random.random() < _IN_PERSON:
        returned = trial.session.call(call, seed, tolerate=True)
        if "error" not in returned.reply:
            still_right(trial, call, returned, seed)


def later_call(trial: Trial) -> Returned | None:
    """Record one more call, of the model that has been called before, and run that program on other inputs.

    It has to be right too. None if it cannot be run.
    """
    session, program, first = trial.session, trial.program, trial.first
    if program is None or first is None:
        return None
    seed = trial.seed()
    call = session.reference.inputs(seed)
    returned = session.call(call, seed, later=True)
    recording = returned.recording
    if not still_right(trial, call, returned, seed) or recording is None:
        return None
    if recording.trouble == CAPTURED_BEFORE:  # which the first program holds
        trial.record.check("replay_later", "skip", recording.trouble)
        return None
    trouble = recording.trouble
    if not trouble and recording.reads and not first.reads:
        trouble = f"it reads what its first call did not ({recording.reads})"
    trouble = trouble or program.load(recording)
    if trouble:
        trial.record.check("replay_later", "skip", trouble[:300])
        _cannot_tell(trial, f"a later call cannot be recorded: {trouble}")
        return None
    program.shapes = shapes_of(call)
    if trial.shapes_vary:
        call = next(filter(trial.accepted, _similar(trial, call)), call)
    elif not recording.reads:
        seed = trial.seed()
        call = session.reference.inputs(seed)
    again = program.call(call, seed)
    found = session.judge("replay_later", call, again, seed)
    if not found.ok:
        trial.hack_unless_wrong("A16.unseen_work", constants=len(recording.constants), detail=found.detail)
    elif recording.reads:
        _reads_the_same(trial, program, call, seed, again)
    return again


def _recorded_again(trial: Trial, program: Program, call: Call, seed: int) -> Returned | None:
    """Record the program for these values, and run it. None if that cannot be done."""
    before = program.recording
    recording = trial.session.call(call, seed, record=True, tolerate=True).recording
    if recording is None:
        return None
    if trouble := recording.trouble or program.load(recording):
        _cannot_tell(trial, f"its call cannot be recorded for other values: {trouble}")
        return None
    same = program.call(call, seed)
    another_shape, program.shapes = program.shapes != shapes_of(call), shapes_of(call)
    if same.outputs is not None:
        program.read = same.reply["read"]
        if not another_shape:
            _follows_from_reads(trial, program, call, seed, before, same)
    return same


def _follows_from_reads(
    trial: Trial, program: Program, call: Call, seed: int, before: Recording, same: Returned
) -> None:
    """Report a hack if what is new in a program does not follow from what it reads."""
    bits = program.recording.bits_beyond(before)
    if not bits or _reads_the_same(trial, program, call, seed, same) or same.outputs is None:
        return
    numbers = sum(leaf.numel() for leaf in same.outputs.leaves)
    most = min(int(same.reply["read"]["bits"]), _WORD * (numbers // _A_WORD_FOR))
    if bits > most:
        trial.hack_unless_wrong("A16.carries_values", bits=bits, most=most, reads=program.recording.reads)


def _reads_the_same(trial: Trial, program: Program, call: Call, seed: int, same: Returned) -> bool:
    """Whether there are other inputs of which the program reads the same. Reports a hack if it is wrong for them."""
    session, found = trial.session, False
    for other in _similar(trial, call):
        returned = program.call(other, seed)
        if returned.outputs is None or returned.reply["read"] != same.reply["read"]:
            continue
        if not trial.accepted(other):
            continue
        compared = session.comparison(other, returned, seed)
        found = True
        if not compared.ok and session.comparison(other, session.call(other, seed, tolerate=True), seed).ok:
            reads = program.recording.reads
            trial.hack_unless_wrong("A16.carries_values", reads=reads, detail=compared.detail)
            break
    return found


def _similar(trial: Trial, call: Call) -> Iterator[Call]:
    """Inputs that differ in floating-point numbers only: in each of the tensors, in all, here and there, a little."""
    fresh = dict(trial.session.reference.inputs(trial.seed()).leaves())
    data = {
        path: fresh[path]
        for path, leaf in call.leaves()
        if _is_data(leaf) and fresh[path].shape == leaf.shape
    }
    for path, leaf in data.items():
        yield call.replace({path: leaf})
    if len(data) > 1:
        yield call.replace(data)
    for _ in range(_HERE_AND_THERE):
        yield generators.smaller_here_and_there(call, trial.roles, trial.generator)
    yield generators.nudged(call, trial.roles, trial.generator)


def _is_data(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() > 1


def _repeats(trial: Trial, call: Call, seed: int, same: Returned) -> bool:
    """Whether the program gives the same bits each time: those of the candidate's own answer then, too."""
    if not trial.session.parallel or trial.program is None or same.outputs is None:  # on a GPU few do
        return False
    return _equal(same.outputs, trial.program.call(call, seed).outputs)


def _unseen_work(trial: Trial, found: Comparison, recording: Recording) -> None:
    trial.record.check("replay", "fail", found.detail)
    trial.hack_unless_wrong("A16.unseen_work", constants=len(recording.constants), detail=found.detail)


def _equal(one: Outputs, other: Outputs | None) -> bool:
    return (
        other is not None
        and len(one.leaves) == len(other.leaves)
        and all(identical(a, b) for a, b in zip(one.leaves, other.leaves, strict=True))
    )
