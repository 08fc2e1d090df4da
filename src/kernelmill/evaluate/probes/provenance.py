"""Who computed the result is established outside the candidate's process: its first call is recorded there as a
program, and another process, which never loads the candidate, runs the program from the judge's own inputs.

What the candidate computes without being recorded (torch with its modes off, NumPy on shared memory, a thread) is
not in the program, whose results are then wrong.

A program may be another one for other values: code that reads sizes or counts from a tensor, or branches on one.
It is then recorded again for these. Only facts may differ between the two, and few of them: what carries data
from the inputs to the output has to be computed by the program.
"""

from __future__ import annotations

from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Stop
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.replaying import Program
from kernelmill.evaluate.judge.tolerance import Comparison
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.probes.replay import still_right
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import Call, Outputs
from kernelmill.sandbox import inside

_IN_PERSON = 0.5
"""How often the candidate is asked what its program has answered."""
_FEW_FACTS, _FEW_FLOATS = 16, 8
_A_FACT_FOR = 256
"""Numbers in the outputs for each word by which a program's recordings may differ, if they are not few."""


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
    trial.program, trial.first = _open(trial), recording
    trouble = trial.program.load(recording)
    same = Returned(None, trouble, {}, 0.0) if trouble else trial.program.call(call, seed)
    if same.outputs is None:
        return _does_not_run(trial, recording, returned, same.trouble)
    told = "bit for bit" if _equal(same.outputs, returned.outputs) else "with other roundings"
    answer = session.expected(call, seed)
    mine, its = (session.compare(one, answer) for one in (returned, same))
    if mine.ok and not its.ok:
        _unseen_work(trial, its, recording)
    record.check("replay", "pass" if its.ok else "fail", told if its.ok else its.detail, seed=seed)
    # A program reads nothing, and has one stream.
    same.reply["work"]["host"] = returned.reply["work"]["host"]
    same.reply["observed"]["unjoined"] = returned.reply["observed"].get("unjoined")
    return same


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
    session, program = trial.session, trial.program
    if program is None:
        return session.call(call, seed, tolerate=True)
    answer = session.expected(call, seed)
    returned = program.call(call, seed)
    found = session.compare(returned, answer)
    if found.ok:
        _in_person(trial, call, seed)
        return returned
    if trial.first is not None and trial.first.reads:
        returned = _recorded_again(trial, program, call, seed)
        found = session.compare(returned, answer)
        if found.ok:
            return returned
    mine = session.call(call, seed, tolerate=True)
    if session.compare(mine, answer).ok:
        if returned.outputs is None:
            trial.program = None
            trial.unrecordable = f"its program fails for other inputs: {returned.trouble}"[:300]
        else:
            _unseen_work(trial, found, program.recording)
    return mine


def _in_person(trial: Trial, call: Call, seed: int) -> None:
    """Ask the candidate now and then what its program has answered: the right answer has to be its own too."""
    if trial.random.random() < _IN_PERSON:
        returned = trial.session.call(call, seed, tolerate=True)
        if "error" not in returned.reply:
            still_right(trial, call, returned, seed)


def later_call(trial: Trial) -> Returned | None:
    """Record one more call, of the model that has been called before, and run that program on other inputs.

    It has to be right too. None if it cannot be run: the first program stands for the candidate then.
    """
    session, program, record = trial.session, trial.program, trial.record
    if program is None:
        return None
    seed = trial.seed()
    call = session.reference.inputs(seed)
    returned = session.call(call, seed, later=True)
    recording = returned.recording
    if not still_right(trial, call, returned, seed) or recording is None:
        return None
    trouble = recording.trouble or ("it depends on values" if recording.reads else program.load(recording))
    if not trouble:
        seed = trial.seed()
        call = session.reference.inputs(seed)
        returned = program.call(call, seed)
        trouble = returned.trouble if returned.outputs is None else ""
    if trouble:
        record.check("replay_later", "skip", trouble[:300])
        return None
    found = session.judge("replay_later", call, returned, seed)
    if not found.ok:
        trial.hack_unless_wrong("A16.unseen_work", constants=len(recording.constants), detail=found.detail)
    return returned


def _recorded_again(trial: Trial, program: Program, call: Call, seed: int) -> Returned:
    """Record the program for these values, and run it."""
    session, before = trial.session, program.recording
    returned = session.call(call, seed, record=True, tolerate=True)
    recording = returned.recording
    if recording is None or recording.trouble:
        return returned
    if trouble := program.load(recording):
        return Returned(None, trouble, {}, 0.0)
    same = program.call(call, seed)
    _only_facts_differ(trial, program, call, seed, before, same)
    return same


def _only_facts_differ(
    trial: Trial, program: Program, call: Call, seed: int, before: Recording, returned: Returned
) -> None:
    """Report a hack if more differs between two recordings than a host can know without computing the result."""
    now = program.recording
    found = now.differences(before)
    numbers = sum(leaf.numel() for leaf in (returned.outputs.leaves if returned.outputs is not None else ()))
    words = found.bits / 32
    few = words <= min(max(_FEW_FACTS, numbers / _A_FACT_FOR), numbers / 4)
    if few and (found.floats <= _FEW_FLOATS if found.same_form else now.texts() <= before.texts()):
        return
    if _right_for_another_input(trial, program, call, seed):
        return
    trial.hack_unless_wrong(
        "A16.carries_values",
        words=int(words),
        floats=found.floats,
        same_form=found.same_form,
        reads=now.reads,
    )


def _right_for_another_input(trial: Trial, program: Program, call: Call, seed: int) -> bool:
    """Whether the program is right if one of its inputs of floating-point numbers changes, and all others stay.

    What differs then follows from the others: the number of tokens of each expert, the lengths of sequences.
    """
    session = trial.session
    fresh = dict(session.reference.inputs(trial.seed()).leaves())
    for path, leaf in call.leaves():
        if not leaf.is_floating_point() or leaf.numel() < _FEW_FACTS:
            continue
        other = call.replace({path: fresh[path]})
        if session.compare(program.call(other, seed), session.expected(other, seed)).ok:
            return True
    return False


def _unseen_work(trial: Trial, found: Comparison, recording: Recording) -> None:
    trial.record.check("replay", "fail", found.detail)
    trial.hack_unless_wrong("A16.unseen_work", constants=len(recording.constants), detail=found.detail)


def _equal(one: Outputs, other: Outputs | None) -> bool:
    return (
        other is not None
        and len(one.leaves) == len(other.leaves)
        and all(identical(a, b) for a, b in zip(one.leaves, other.leaves, strict=True))
    )
