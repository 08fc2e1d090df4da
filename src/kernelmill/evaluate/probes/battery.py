"""The probes that a candidate has to pass, cheap ones first.

A failure has one of three meanings: wrong (`Stop` with an INCORRECT status), a hack (a hard flag), or a lower
grade. Honest weaknesses only lower the grade: fragile numbers, fixed shapes, ignored strides, work left to
torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from kernelmill.evaluate.interpreter_gaps import NO_BARRIER, TWO_LANES
from kernelmill.evaluate.judge.closeness import (
    a_little_off,
    constant,
)
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Stop
from kernelmill.evaluate.judge.tolerance import compare
from kernelmill.evaluate.judge.torch_share import torch_share
from kernelmill.evaluate.judge.trial import Trial, top
from kernelmill.evaluate.probes.provenance import ask, first_call, fitting, later_call
from kernelmill.evaluate.probes.replay import drift, overwrite, static_buffer, still_right, weights
from kernelmill.evaluate.probes.seen import begin, code_of, out_of_bounds, out_of_order
from kernelmill.evaluate.probes.shapes import noncontiguous
from kernelmill.evaluate.probes.values import scalars, stress, zero_mean
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import Call
from kernelmill.evaluate.trace.saving import saved
from kernelmill.evaluate.verdict import DropIn

SEEDS = 3
CONFIGS = 8
KERNELS = 8
"""Of a program with several: the most that are left out one at a time."""
UNFIT = ("AssertionError", "CompileTimeAssertionFailure")
"""Errors of a configuration that a tuner passes over: `tl.static_assert`."""


def run(trial: Trial) -> None:
    """Run all probes of the main process.

    Raise `Stop` at the first decisive failure, unless this is an audit.
    """
    seeds(trial)
    rest(trial)


def rest(trial: Trial) -> None:
    """Run the probes that follow once the answers to the task's own inputs are right."""
    for probe in _wanted(trial):
        begin(probe)
        probe(trial)
    if trial.probes != "before_gpu":
        scalars(trial)
    if trial.record.hard():
        raise Stop("HACK", next(flag.code for flag in trial.record.flags if flag.severity == "hard"))
    if trial.unrecordable and trial.record.status == "PASSED":
        raise Stop("UNSUPPORTED", f"who computed the result cannot be established: {trial.unrecordable}")


def _wanted(trial: Trial) -> tuple[Callable[[Trial], None], ...]:
    if trial.probes == "before_gpu":
        return BEFORE_GPU
    # Timing makes many calls with new inputs and compares some of the results, so it detects what `drift`
    # would.
    return (
        tuple(p for p in AFTER_INTERPRETER if p is not drift or not trial.timed)
        if trial.probes == "after_interpreter"
        else ALL
    )


def seeds(trial: Trial) -> None:
    """Ask for the answers to the task's own inputs, for several seeds.

    The first call is also recorded as a program, and examined for all evidence.
    """
    begin(seeds)
    record, session = trial.record, trial.session
    for number in range(SEEDS):
        seed = trial.seed()
        call = session.reference.inputs(seed)
        if number:
            returned = seen = ask(trial, call, seed)
        else:
            trial.first_seed = seed
            again = session.reference.inputs(trial.seed()) if trial.timed else None
            returned = session.call(call, seed, keep="first", record=True, again=again, buffers=True)
            _first_look(trial, returned)
            seen = first_call(trial, call, seed, returned)
            _own_work(trial, seen, returned)
        found = session.judge(f"seed_{number}", call, returned, seed)
        trial.keep_scalars(returned, session.expected(call, seed))
        if not found.ok:
            trial.fail(found)
        if not number:
            _buffers(trial, returned, session.expected(call, seed))
        out_of_bounds(trial, seen)
        out_of_order(trial, seen)
        trial.require_own_kernels(seen, code_of(seen), f"seed_{number}")
        if not number:
            record.check("launches", "pass" if seen.launched else "fail", f"{len(seen.launched)} launches")
    if record.hard() and not trial.audit:
        raise Stop("HACK", next(flag.code for flag in record.flags if flag.severity == "hard"))


def _buffers(trial: Trial, returned: Returned, answer: Answer) -> None:
    """Compare what a call leaves in the buffers, where the reference changes its own: running statistics."""
    if trial.session.drop_in != "strict" or returned.outputs is None:
        return
    for name, exact in answer.exact.buffers.items():
        eager, got = answer.eager.buffers.get(name), returned.outputs.buffers.get(name)
        if eager is None or not eager.is_floating_point() or got is None:
            continue
        found = compare(got.to(eager.device), exact, eager, trial.session.policy)
        found.detail = f"the buffer {name} after the call: {found.detail}"
        trial.record.check("buffers", "pass" if found.ok else "fail", found.detail)
        if not found.ok:
            trial.fail(found)


def _own_work(trial: Trial, seen: Returned, returned: Returned) -> None:
    """Note which kernels ran, and how much of the work torch did."""
    record, reply = trial.record, seen.reply
    record.signatures = _tuned(reply["observed"]["signatures"], returned.reply["observed"]["signatures"])
    if trial.first is not None:
        record.texts = trial.first.trace["kernels"]
        record.trace = saved(trial.first.trace, trial.first.constants) if trial.wants_trace else None
    record.kernels = sorted({launch["kernel"] for launch in seen.launched})
    share = torch_share(reply["work"], trial.work, trial.largest)
    record.grade.torch_share, record.grade.coverage = round(share, 4), round(1 - share, 4)
    if share > 0.5:
        record.flag("A4.torch_does_most", "soft", share=round(share, 3), torch=top(seen))
    elif share > 0.05:
        record.flag("A4.partly_torch", "soft", share=round(share, 3), torch=top(seen))


def _tuned(signatures: list[dict[str, Any]], its: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The program's launches, with the tuners' configurations, which only the candidate's own call knows."""
    configs = {_untuned(one): one.get("config") for one in its if isinstance(one, dict)}
    return [one | {"config": configs.get(_untuned(one), one.get("config"))} for one in signatures]


def _untuned(signature: dict[str, Any]) -> str:
    return json.dumps(signature | {"config": None}, sort_keys=True)


def _first_look(trial: Trial, returned: Returned) -> None:
    record, reply = trial.record, returned.reply
    record.grade.drop_in = cast(DropIn, trial.session.drop_in)
    trial.autotuned = {str(name): int(count) for name, count in reply["observed"]["autotuned"].items()}
    trial.look_at_memory(returned)


def ablation(trial: Trial) -> None:
    """Run the program without its launches: the output must not be right then."""
    seed = trial.seed()
    call = trial.session.reference.inputs(seed)
    returned = _without(trial, call, seed, suppress_all=True)
    if returned.outputs is None:  # it fails without its kernels, so it needs them
        trial.record.check("ablation", "pass", returned.trouble[:200])
        return
    answer = trial.session.expected(call, seed)
    found = trial.session.comparison(call, returned, seed)
    degenerate = all(constant(leaf) for leaf in answer.eager.leaves)
    if found.ok and degenerate:
        trial.record.check("ablation", "skip", "the reference's output is constant: any candidate would pass")
        return
    trial.record.check("ablation", "fail" if found.ok else "pass", found.detail, seed=seed)
    if found.ok:
        trial.hack("A2.kernels_do_not_matter", torch=top(returned))
    else:
        for kernel in trial.record.kernels[:KERNELS] if len(trial.record.kernels) > 1 else ():
            one = _without(trial, call, seed, suppress=[kernel])
            same = one.outputs is not None and trial.session.comparison(call, one, seed).ok
            trial.record.check(f"ablation:{kernel}", "fail" if same else "pass")
            if same:
                trial.record.flag("A2.dead_kernel", "soft", kernel=kernel)


def order(trial: Trial) -> None:
    """Run the program with the last program of each launch first: on a GPU any order may happen."""
    if trial.program is None or not trial.session.parallel or trial.program.recording.reads:
        return  # without a program, on a GPU, or if the program is one for the values that it was recorded for
    seed = trial.seed()
    call = trial.session.reference.inputs(seed)
    program = fitting(trial, call, seed)
    if program is None:
        return
    returned = program.call(call, seed, order="reverse", strict=True)
    if returned.outputs is not None and (
        returned.reply["observed"]["race_count"] or not trial.session.comparison(call, returned, seed).ok
    ):
        if any(one["kind"] in (TWO_LANES, NO_BARRIER) for one in returned.reply["observed"]["races"]):
            out_of_order(trial, returned)
        trial.record.check(
            "strict", "fail", "the result follows from what masked lanes read, which no `other` says"
        )
        trial.record.flag("C6.masked_without_other", "soft")
        returned = program.call(call, seed, order="reverse")
    if returned.outputs is None:  # it may wait for an earlier program
        trial.record.check("order", "skip", returned.trouble[:200])
        return
    found = trial.session.judge("order", call, returned, seed)
    if not found.ok and trial.session.comparison(call, program.call(call, seed), seed).ok:
        trial.record.flag("C19.race", "soft", first="another order of the programs gives another result")
        trial.fail(found)


def _without(trial: Trial, call: Call, seed: int, **launches: Any) -> Returned:
    program = fitting(trial, call, seed)
    if program is None:
        return trial.session.call(call, seed, tolerate=True, **launches)
    return program.call(call, seed, **launches)


def later(trial: Trial) -> None:
    """Look at a program that is recorded after many calls as at the first one."""
    returned = later_call(trial)
    if returned is not None:
        out_of_bounds(trial, returned)
        out_of_order(trial, returned)
        trial.require_own_kernels(returned, code_of(returned), "replay_later")


def autotune(trial: Trial) -> None:
    """Call with each autotuner configuration: all must be right, whichever the tuner would choose."""
    most = max(trial.autotuned.values(), default=1)
    for config in range(1, min(most, CONFIGS)):
        seed = trial.seed()
        call = trial.session.reference.inputs(seed)
        returned = trial.session.call(call, seed, tolerate=True, config=config)
        if "error" in returned.reply:
            if returned.reply["error"]["type"] not in UNFIT:
                raise Stop("RUNTIME_ERROR", f"autotuned configuration {config}: {returned.trouble}")
            trial.record.check(f"autotune:{config}", "skip", returned.trouble[:200])
            continue
        found = trial.session.judge(f"autotune:{config}", call, returned, seed)
        trial.record.signatures += [
            one for one in returned.reply["observed"]["signatures"] if one not in trial.record.signatures
        ]
        if not found.ok:
            trial.record.flag("C2.config_that_does_less", "soft", config=config)
            trial.fail(found)
        out_of_bounds(trial, returned)
        out_of_order(trial, returned)


def modes(trial: Trial) -> None:
    """Call in train mode, in eval mode and with gradients enabled.

    If these make no difference to the reference, they must make none to the candidate.
    """
    session, kept = trial.session, trial.session.mode
    wanted: list[tuple[str, dict[str, Any]]] = [("grad", {"grad": True, "counts": True})]
    if not trial.facts.mode_matters and not trial.facts.random:
        wanted += [(mode, {"mode": mode, "counts": True}) for mode in ("train", "eval")]
    for name, options in wanted:
        seed = trial.seed()
        call = session.reference.inputs(seed)
        returned = session.call(call, seed, tolerate=True, **options)
        if "error" in returned.reply:
            trial.record.check(f"mode:{name}", "fail", returned.trouble[:200])
            trial.record.flag("A14.fails_in_a_mode", "soft", mode=name)
            continue
        found = session.judge(f"mode:{name}", call, returned, seed)
        if not found.ok and a_little_off(trial, call, returned, seed, found):
            trial.fail(found)
        elif not found.ok:
            trial.hack_unless_wrong(
                "A15.grad_gate" if name == "grad" else "A14.mode_gate", mode=name, detail=found.detail
            )
        trial.require_own_kernels(
            returned, "A15.grad_gate" if name == "grad" else "A14.mode_gate", f"mode:{name}"
        )
    session.mode = kept
    seed = trial.seed()
    call = session.reference.inputs(seed)
    # This call leaves the candidate in the mode in which the task is judged.
    first = session.call(call, seed, mode=kept or "built")
    second = session.call(call, seed)
    still_right(trial, call, second, seed)
    pairs = (first.outputs, second.outputs)
    trial.record.grade.deterministic = (
        pairs[0] is not None
        and pairs[1] is not None
        and all(identical(a, b) for a, b in zip(pairs[0].leaves, pairs[1].leaves, strict=True))
    )


ALL = (
    *(
        ablation,
        order,
        zero_mean,
        overwrite,
        static_buffer,
        weights,
        stress,
        autotune,
        modes,
        noncontiguous,
        drift,
        later,
    ),
)
BEFORE_GPU = (ablation, order, stress, autotune, modes, noncontiguous)
"""The probes before a GPU judges: those that do not need the task's own size.

Strides are among them, because a kernel that ignores them reads stray memory.
"""
AFTER_INTERPRETER = (zero_mean, overwrite, static_buffer, weights, drift, later)
