"""The judge's side of a replay: have one process record a call, and another run the recording.

The candidate's process hands over a program. The second process, which never loads the candidate, runs it from
the judge's own inputs and weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelmill.evaluate.judge.channel import Bytes, pack
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Limits
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.task.values import Call, Outputs


@dataclass
class Recording:
    """A trace, and what the candidate returned while it was recorded."""

    trace: dict[str, Any]
    constants: list[memoryview]
    """The bytes of the trace's constants."""
    outputs: Outputs | None
    trouble: str = ""
    """Why there is no trace."""


def record(session: Session, call: Call, seed: int) -> Recording:
    """Have the candidate record a new model's first call on these inputs."""
    fields, carrier = _given(session, call, seed)
    said, out = session.trace(fields, carrier)
    if trouble := _trouble(said):
        return Recording({}, [], None, trouble)
    trace = said["trace"]
    constants = sum("constant" in step for step in trace["steps"])
    outputs, trouble = session.unpacked_outputs(said, out[constants:])
    return Recording(trace, out[:constants], outputs, trouble)


class Replay:
    """A process that runs a recording. `process` is a session with a companion that has loaded nothing."""

    def __init__(self, process: Session, judged: Session, recording: Recording) -> None:
        self._process, self._judged = process, judged
        carrier = Bytes()
        carrier.sent = [bytes(blob) for blob in recording.constants]
        said, _ = process.ask(
            "load_trace", Limits().load_s, {"trace": recording.trace}, carrier, tolerate=True
        )
        self.trouble = _trouble(said)
        """Why the program cannot be run."""

    def call(self, call: Call, seed: int) -> Returned:
        fields, carrier = _given(self._judged, call, seed)
        said, out = self._process.ask("replay", self._process.call_s, fields, carrier, tolerate=True)
        if trouble := _trouble(said):
            return Returned(None, trouble, said, float(said["seconds"]))
        outputs, trouble = self._process.unpacked_outputs(said, out)
        return Returned(outputs, trouble, said, float(said["seconds"]))


def _given(session: Session, call: Call, seed: int) -> tuple[dict[str, Any], Bytes]:
    """What a program starts from: the constructor's arguments, the reference's weights, the inputs."""
    carrier = Bytes()
    init = session.reference.init_call(session.built_with)
    return {
        "init": pack((init.args, init.kwargs), carrier),
        "state": pack(dict(session.model.state_dict()), carrier),
        "inputs": pack((call.args, call.kwargs), carrier),
        "seed": seed,
        "built_with": session.built_with,
        "mode": session.mode,
    }, carrier


def _trouble(said: dict[str, Any]) -> str:
    error = said.get("error")
    return "" if error is None else f"{error['type']}: {error['message']}"
