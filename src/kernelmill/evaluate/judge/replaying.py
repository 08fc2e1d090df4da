"""The candidate's program, and the process that runs it.

The candidate's process hands over what a call did as a program (`evaluate.trace`). A second process, which never
loads the candidate, runs it from the judge's own inputs and weights: launches, torch's work, bounds and races
are facts of that run.
"""

from __future__ import annotations

from typing import Any

from kernelmill.evaluate.judge.channel import Bytes, pack
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.record import Limits, Stop
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.session import Session
from kernelmill.evaluate.task.values import Call


class Program:
    """A process that runs recordings. `process` is a session with a companion that has loaded nothing."""

    def __init__(self, process: Session, judged: Session) -> None:
        self.process, self._judged = process, judged
        self.recording: Recording
        self.read: Any = None
        """What the program read of the inputs that it was recorded for."""
        self.shapes: Any = None
        """Their shapes."""

    def load(self, recording: Recording) -> str:
        """Take a recording. Returns why it cannot be run, or nothing."""
        self.recording = recording
        carrier = Bytes()
        carrier.sent = list(recording.constants)
        said, _ = self.process.ask(
            "load_trace", Limits().load_s, {"trace": recording.trace}, carrier, tolerate=True
        )
        return _trouble(said)

    def call(self, call: Call, seed: int, **options: Any) -> Returned:
        said, out = self._ask("replay", call, seed, **options)
        if trouble := _trouble(said):
            return Returned(None, trouble, said, float(said["seconds"]))
        outputs, trouble = self.process.unpacked_outputs(said, out)
        return Returned(outputs, trouble, said, float(said["seconds"]))

    def ready(self, call: Call, seed: int) -> bool:
        """Have the process run the recorded second call from now on, as if it were a candidate's model.

        Return False if none was recorded, if it depends on values, or if it fails.
        """
        if self.recording.trace.get("again") is None or self.recording.reads:
            return False
        return not _trouble(self._ask("ready", call, seed)[0])

    def _ask(self, do: str, call: Call, seed: int, **options: Any) -> tuple[dict[str, Any], list[memoryview]]:
        carrier = self.process.outgoing()
        fields = {"inputs": pack((call.args, call.kwargs), carrier), "seed": seed}
        fields |= self._judged.start(carrier) | options
        self.process.exclusive = self._judged.exclusive
        try:
            return self.process.ask(do, self.process.call_s, fields, carrier, tolerate=True)
        except Stop as stop:
            if stop.status == "HACK" or self._judged.record.retry_exclusively:
                raise
            # That a program does not end here is no evidence against a candidate that does.
            return {"error": {"type": stop.status, "message": stop.error}, "seconds": 0.0}, []


def _trouble(said: dict[str, Any]) -> str:
    error = said.get("error")
    return "" if error is None else f"{error['type']}: {error['message']}"
