"""The candidate's program, and the process that runs it.

The candidate's process hands over what a call did as a program (`evaluate.trace`). A second process, which never
loads the candidate, runs it from the judge's own inputs and weights: launches, torch's work, bounds and races
are facts of that run.
"""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.judge.channel import Bytes, pack
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Limits
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.task.values import Call


class Program:
    """A process that runs recordings. `process` is a session with a companion that has loaded nothing."""

    def __init__(self, process: Session, judged: Session) -> None:
        self._process, self._judged = process, judged
        self.recording: Recording

    def load(self, recording: Recording) -> str:
        """Take a recording. Returns why it cannot be run, or nothing."""
        self.recording = recording
        carrier = Bytes()
        carrier.sent = list(recording.constants)
        said, _ = self._process.ask(
            "load_trace", Limits().load_s, {"trace": recording.trace}, carrier, tolerate=True
        )
        return _trouble(said)

    def call(self, call: Call, seed: int, **options: Any) -> Returned:
        carrier = self._process.outgoing()
        fields = {"inputs": pack((call.args, call.kwargs), carrier), "seed": seed}
        fields |= self._judged.start(carrier) | options
        said, out = self._process.ask("replay", self._process.call_s, fields, carrier, tolerate=True)
        if trouble := _trouble(said):
            return Returned(None, trouble, said, float(said["seconds"]))
        outputs, trouble = self._process.unpacked_outputs(said, out)
        return Returned(outputs, trouble, said, float(said["seconds"]))


def _trouble(said: dict[str, Any]) -> str:
    error = said.get("error")
    return "" if error is None else f"{error['type']}: {error['message']}"
