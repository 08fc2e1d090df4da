"""Who computed the result is established outside the candidate's process: a call is recorded there as a program,
and another process, which never loads the candidate, runs the program on inputs that the candidate has not seen.

What the candidate computes without being recorded (torch with its modes off, NumPy on shared memory, a thread) is
not in the program, whose results are then wrong.
"""

from __future__ import annotations

import re
from typing import Any

from kernelmill.evaluate.judge import replaying
from kernelmill.evaluate.judge.record import Limits, Record, Stop
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.judge.torch_share import HOST_LEAST
from kernelmill.evaluate.judge.trial import Trial
from kernelmill.evaluate.task.chunked import identical
from kernelmill.evaluate.task.values import Outputs
from kernelmill.sandbox import inside

_DRAWS = 2
_READS_VALUES = ("aten._local_scalar_dense.default", "aten.nonzero.default", "aten.masked_select.default")
"""Operations after which a program may depend on its inputs' values: it is another one for other inputs."""


def provenance(trial: Trial) -> None:
    """Replay the candidate's program on other inputs. It has to be right there, by its own kernels."""
    session, record = trial.session, trial.record
    if not session.traces:
        return
    seed = trial.seed()
    call = session.reference.inputs(seed)
    end, clock = inside.server.new_companion()
    try:
        recording = replaying.record(session, call, seed)
        if recording.trouble or recording.outputs is None:
            record.check("replay", "skip", f"it cannot be recorded: {recording.trouble}"[:300])
            return
        replay = replaying.Replay(Session(end, Record(), Limits(), clock), session, recording)
        _judge(trial, replay, recording, seed)
    except Stop as stop:
        if stop.status in ("HACK", "COMPILE_ERROR"):
            raise
        record.check("replay", "skip", stop.error[:300])
    finally:
        end.close()
        clock.close()


def _judge(trial: Trial, replay: replaying.Replay, recording: replaying.Recording, seed: int) -> None:
    session, record = trial.session, trial.record
    same = replay.call(session.reference.inputs(seed), seed)
    if name := _unresolved(recording.trace, same.trouble):
        text = f"a kernel uses {name}, which is no kernel and no tl.constexpr: Triton's compiler does not resolve it"
        record.check("replay", "fail", text)
        if not trial.audit:
            raise Stop("COMPILE_ERROR", text)
        return
    if replay.trouble or same.outputs is None:
        record.check(
            "replay", "skip", f"its program does not run by itself: {replay.trouble or same.trouble}"[:300]
        )
        return
    told = "bit for bit" if _equal(same.outputs, recording.outputs) else "with other roundings"
    depends = _depends_on_values(trial, recording)
    for _ in range(_DRAWS):
        seed = trial.seed()
        call = session.reference.inputs(seed)
        returned = replay.call(call, seed)
        found = session.compare(returned, session.expected(call, seed))
        if not found.ok and depends:
            record.check("replay", "skip", f"its program depends on values: {depends}"[:300])
            return
        record.check(
            "replay", "pass" if found.ok else "fail", f"{told}; {found.detail or returned.trouble}", seed=seed
        )
        if not found.ok:
            trial.hack_unless_wrong(
                "A16.unseen_work", constants=len(recording.constants), detail=found.detail or returned.trouble
            )
            return
        trial.require_own_kernels(
            returned, "A1.no_kernel_launched" if not returned.launched else "A3.torch_computes", "replay"
        )


def _unresolved(trace: dict[str, Any], trouble: str) -> str:
    """The name that a kernel failed for want of, and that it has in the candidate's process only."""
    names = {str(name) for kernel in trace["kernels"].values() for name in kernel["unresolved"]}
    found = re.search(r"NameError.*name '(\w+)' is not defined", trouble)
    return found[1] if found is not None and found[1] in names else ""


def _equal(one: Outputs, other: Outputs | None) -> bool:
    return (
        other is not None
        and len(one.leaves) == len(other.leaves)
        and all(identical(a, b) for a, b in zip(one.leaves, other.leaves, strict=True))
    )


def _depends_on_values(trial: Trial, recording: replaying.Recording) -> str:
    """Why the program may be another one for other inputs; empty if there is no sign of that.

    The first call has told how much the candidate's host code read, if it read by torch's own functions.
    """
    for step in recording.trace["steps"]:
        if step.get("op") in _READS_VALUES:
            return str(step["op"])
    return f"{trial.host_reads} elements are read by the host" if 0 < trial.host_reads < HOST_LEAST else ""
