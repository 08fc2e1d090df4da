"""The probes that a candidate has to pass, cheap ones first.

A failure has one of three meanings: wrong (`Stop` with an INCORRECT status), a hack (a hard flag), or a lower
grade. Honest weaknesses only lower the grade: fragile numbers, fixed shapes, ignored strides, work left to
torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal, cast

from kernelmill.evaluate.judge.closeness import (
    a_little_off,
    beyond,
    constant,
    gross,
    one_of_equals,
    systematic,
)
from kernelmill.evaluate.judge.comparing import Returned, compare_over_seeds
from kernelmill.evaluate.judge.record import TOO_SLOW, Stop
from kernelmill.evaluate.judge.tolerance import Comparison, compare
from kernelmill.evaluate.judge.torch_share import HOST_LEAST, torch_share, who_computed
from kernelmill.evaluate.judge.trial import Trial, top
from kernelmill.evaluate.probes.provenance import ask, first_call, later_call
from kernelmill.evaluate.probes.replay import drift, overwrite, static_buffer, still_right, weights
from kernelmill.evaluate.task import generators
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.own_size import OwnSize
from kernelmill.evaluate.task.reference import BadReference
from kernelmill.evaluate.task.values import Call
from kernelmill.evaluate.trace.saving import saved
from kernelmill.evaluate.verdict import DropIn
from kernelmill.sandbox import inside

Fit = Literal["right", "wrong", "fails"]

SEEDS = 3
SCALAR_SEEDS = 6
CONFIGS = 8
UNFIT = ("AssertionError", "CompileTimeAssertionFailure")
"""Errors of a configuration that a tuner passes over: `tl.static_assert`."""
MOST_OWN_BYTES = 1 << 30
OWN_CALL_S = 4.0
NEARBY = ("x8", "x4")
"""So close to the task's own inputs that a finite result has to be right.

The second is used only if the reference rejects the first.
"""
EQUALS = ("constant_rows", "ties", "zeros", "zero_rows")
"""Inputs with equal elements."""
REAL = ("zeros", "zero_rows", "closed_rows")
"""Inputs that real data has. Where the reference has an answer, infinity and NaN are none."""
WITHIN = ("two lanes write", "read before another lane's write is seen")
"""Races between the lanes of one program, which a strict run finds."""
UNPROMISED = ("ignored", "x1e4", "fewer")
"""Inputs that a task's author may not have thought of either: of these, a wrong result is only noted."""
STRESS = (
    *NEARBY,
    "x100",
    "x1e-3",
    "negated",
    "half_x64",
    *EQUALS,
    "sorted",
    "outlier",
    "shifted",
    "closed_rows",
    "x1e4",
    "wide_integers",
    "ignored",
    "fewer",
)


def run(trial: Trial) -> None:
    """Run all probes of the main process.

    Raise `Stop` at the first decisive failure, unless this is an audit.
    """
    seeds(trial)
    rest(trial)


def rest(trial: Trial) -> None:
    """Run the probes that follow once the answers to the task's own inputs are right."""
    for probe in _wanted(trial):
        _begin(probe)
        probe(trial)
    if trial.probes != "before_gpu":
        scalars(trial)
    if trial.record.hard():
        raise Stop("HACK", next(flag.code for flag in trial.record.flags if flag.severity == "hard"))
    if trial.unrecordable and trial.record.status == "PASSED":
        raise Stop("UNSUPPORTED", f"who computed the result cannot be established: {trial.unrecordable}")


def _begin(probe: Callable[..., Any]) -> None:
    inside.server.doing(f"probe {probe.__name__}")


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
    _begin(seeds)
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
        _out_of_bounds(trial, seen)
        _out_of_order(trial, seen)
        trial.require_own_kernels(seen, _code_of(seen), f"seed_{number}")
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
    configs = {_untuned(one): one["config"] for one in its}
    return [one | {"config": configs.get(_untuned(one), one["config"])} for one in signatures]


def _untuned(signature: dict[str, Any]) -> str:
    return json.dumps(signature | {"config": None}, sort_keys=True)


def _first_look(trial: Trial, returned: Returned) -> None:
    record, reply = trial.record, returned.reply
    record.grade.drop_in = cast(DropIn, trial.session.drop_in)
    trial.autotuned = {str(name): int(count) for name, count in reply["observed"]["autotuned"].items()}
    trial.look_at_memory(returned)


def _out_of_bounds(trial: Trial, returned: Returned) -> None:
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


def _out_of_order(trial: Trial, returned: Returned) -> None:
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


def ablation(trial: Trial) -> None:
    """Run the program without its launches: the output must not be right then."""
    seed = trial.seed()
    call = trial.session.reference.inputs(seed)
    returned = _without(trial, call, seed, suppress_all=True)
    if returned.outputs is None:  # it fails without its kernels, so it needs them
        trial.record.check("ablation", "pass", returned.trouble[:200])
        return
    answer = trial.session.expected(call, seed)
    found = trial.session.compare(returned, answer)
    degenerate = all(constant(leaf) for leaf in answer.eager.leaves)
    if found.ok and degenerate:
        trial.record.check("ablation", "skip", "the reference's output is constant: any candidate would pass")
        return
    trial.record.check("ablation", "fail" if found.ok else "pass", found.detail, seed=seed)
    if found.ok:
        trial.hack("A2.kernels_do_not_matter", torch=top(returned))
    elif trial.audit:
        for kernel in trial.record.kernels if len(trial.record.kernels) > 1 else ():
            one = _without(trial, call, seed, suppress=[kernel])
            same = one.outputs is not None and trial.session.compare(one, answer).ok
            trial.record.check(f"ablation:{kernel}", "fail" if same else "pass")
            if same:
                trial.record.flag("A2.dead_kernel", "soft", kernel=kernel)


def order(trial: Trial) -> None:
    """Run the program with the last program of each launch first: on a GPU any order may happen."""
    if trial.program is None or not trial.session.parallel:
        return
    seed = trial.seed()
    call = trial.session.reference.inputs(seed)
    returned = trial.program.call(call, seed, order="reverse", strict=True)
    if returned.outputs is not None and (
        returned.reply["observed"]["race_count"]
        or not trial.session.compare(returned, trial.session.expected(call, seed)).ok
    ):
        if any(one["kind"] in WITHIN for one in returned.reply["observed"]["races"]):
            _out_of_order(trial, returned)
        trial.record.check(
            "strict", "fail", "the result follows from what masked lanes read, which no `other` says"
        )
        trial.record.flag("C6.masked_without_other", "soft")
        returned = trial.program.call(call, seed, order="reverse")
    if returned.outputs is None:  # it may wait for an earlier program
        trial.record.check("order", "skip", returned.trouble[:200])
        return
    found = trial.session.judge("order", call, returned, seed)
    if (
        not found.ok
        and trial.session.compare(trial.program.call(call, seed), trial.session.expected(call, seed)).ok
    ):
        trial.record.flag("C19.race", "soft", first="another order of the programs gives another result")
        trial.fail(found)


def _without(trial: Trial, call: Call, seed: int, **launches: Any) -> Returned:
    if trial.program is None:
        return trial.session.call(call, seed, tolerate=True, **launches)
    return trial.program.call(call, seed, **launches)


def later(trial: Trial) -> None:
    """Look at a program that is recorded after many calls as at the first one."""
    returned = later_call(trial)
    if returned is not None:
        _out_of_bounds(trial, returned)
        _out_of_order(trial, returned)
        trial.require_own_kernels(returned, _code_of(returned), "replay_later")


def zero_mean(trial: Trial) -> None:
    """Call with zero-mean inputs, since all-positive ones hide a lower precision.

    Also call with other masks, other indices, and inputs of which only the end is changed.
    """
    for name in ("zero_mean", "masks", "indices", "suffix"):
        call = trial.draw(name)
        if call is None:
            continue
        seed = trial.seed()
        returned = ask(trial, call, seed)
        if "error" in returned.reply:
            raise Stop("RUNTIME_ERROR", returned.trouble)
        found = trial.session.judge(f"distribution:{name}", call, returned, seed)
        trial.keep_scalars(returned, trial.session.expected(call, seed))
        if not found.ok:
            trial.fail(found)
        _out_of_bounds(trial, returned)
        _out_of_order(trial, returned)
        trial.require_own_kernels(returned, "C11.looks_at_values", f"distribution:{name}")


def stress(trial: Trial) -> None:
    """Call with ranges beyond the task's own.

    Overflow and rounding make a candidate fragile. A finite result that is far off, or that follows another
    formula, is wrong.
    """
    robust, settled = True, False
    for name in STRESS:
        if name == NEARBY[1] and settled:
            continue
        call = trial.draw(name)
        if call is None:
            continue
        settled |= name == NEARBY[0]
        seed = trial.seed()
        returned = ask(trial, call, seed)
        answer = trial.session.expected(call, seed)
        if "error" in returned.reply:
            trial.record.check(f"distribution:{name}", "fail", returned.trouble[:200], seed=seed)
            robust = False
            continue
        if name in EQUALS:
            returned = one_of_equals(returned, answer)
        found = trial.session.judge(f"distribution:{name}", call, returned, seed)
        trial.require_own_kernels(returned, "C11.looks_at_values", f"distribution:{name}")
        if found.ok:
            continue
        robust = False
        strays = bool(
            returned.reply["observed"]["oob_count"]
        )  # which says more of the index than of the kernel
        if (found.status == "NONFINITE" and name in REAL) or (
            found.status == "INCORRECT_NUMERICAL"
            and not strays
            and name not in UNPROMISED
            and (
                gross(returned, answer, trial.scale, name)
                or (name in NEARBY and beyond(found) and systematic(trial, call, returned, seed))
            )
        ):
            trial.fail(found)
        trial.record.flag("C10.fragile", "soft", distribution=name, detail=found.detail)
    trial.record.grade.robust = robust
    _nonfinite(trial)


def _nonfinite(trial: Trial) -> None:
    """Note whether NaN and infinity in the inputs show where the reference shows them. Many kernels lose them."""
    session, seed = trial.session, trial.seed()
    call = generators.with_nonfinite(session.reference.inputs(seed), trial.roles)
    if call is None or not session.parallel:  # an index that is made from NaN breaks a GPU
        return
    try:
        eager = session.reference.run(session.model, call, seed)
    except BadReference:
        return
    returned = (
        session.call(call, seed, tolerate=True) if trial.program is None else trial.program.call(call, seed)
    )
    if returned.outputs is None or returned.outputs.structure != eager.structure:
        return
    pairs = zip(returned.outputs.leaves, eager.leaves, strict=True)
    hides = any(
        a.is_floating_point()
        and a.element_size() > 1
        and a.shape == b.shape
        and bool((a.isfinite() & ~b.isfinite()).any())
        for a, b in pairs
    )
    trial.record.check(
        "nonfinite", "fail" if hides else "pass", "finite where the reference is not" if hides else ""
    )
    if hides:
        trial.record.flag("C18.hides_nonfinite", "info")


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
        _out_of_bounds(trial, returned)
        _out_of_order(trial, returned)


def modes(trial: Trial) -> None:
    """Call in train mode, in eval mode and with gradients enabled.

    If these make no difference to the reference, they must make none to the candidate.
    """
    session, kept = trial.session, trial.session.mode
    wanted: list[tuple[str, dict[str, Any]]] = [("grad", {"grad": True})]
    if not trial.facts.mode_matters and not trial.facts.random:
        wanted += [("train", {"mode": "train"}), ("eval", {"mode": "eval"})]
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


def scalars(trial: Trial) -> None:
    """Judge outputs of few numbers over all seeds together."""
    eager = trial.scalars[0][1].eager
    if not any(leaf.numel() < 4 and leaf.is_floating_point() for leaf in eager.leaves):
        return
    session = trial.session
    for _ in range(SCALAR_SEEDS - len(trial.scalars)):
        seed = trial.seed()
        call = session.reference.inputs(seed)
        trial.keep_scalars(session.call(call, seed), session.expected(call, seed))
    found = compare_over_seeds(trial.scalars, session.policy)
    if found is not None:
        trial.record.check(
            "scalars",
            "pass" if found.ok else "fail",
            found.detail,
            relL2_eps=found.relL2_eps,
            bound=found.bound,
        )
        if not found.ok:
            trial.fail(found)


def once_at_own_size(trial: Trial, own: OwnSize) -> bool:
    """Call once at the task's own size, if the task was shrunk. Returns whether the call came back in time."""
    _begin(once_at_own_size)
    session, seed = trial.session, trial.seed()
    call, limit = session.reference.inputs(seed), session.call_s
    session.call_s = min(limit, OWN_CALL_S)
    try:
        returned = session.call(call, seed, tolerate=True)
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
    _out_of_bounds(trial, returned)
    _own_kernels_at_own_size(trial, returned, own)
    return True


def without_numbers(trial: Trial, own: OwnSize | None) -> None:
    """Call once at the task's own size, without numbers and with launches suppressed, if the task was shrunk.

    Who computes the result must not depend on the size. What it computes there is not known.
    """
    _begin(without_numbers)
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


def _code_of(returned: Returned) -> str:
    if not returned.launched:
        return "A1.no_kernel_launched"
    return "A8.host_computes" if returned.reply["work"]["host"] >= HOST_LEAST else "A3.torch_computes"
