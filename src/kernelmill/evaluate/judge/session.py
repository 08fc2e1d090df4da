"""The judge's side of the conversation with one candidate process, and the comparison of each answer.

`Session` sends requests (`load`, `build`, `call` …) and raises `Stop` when the candidate cannot continue.
`Record` (`judge.record`) collects checks and flags. The package `evaluate.probes` decides what to ask.
"""

from __future__ import annotations

import functools
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import torch

from kernelmill.evaluate.judge.channel import (
    BadFrame,
    Bytes,
    Carrier,
    Channel,
    Closed,
    Hollow,
    Other,
    TimedOut,
    pack,
    unpack,
)
from kernelmill.evaluate.judge.comparing import (
    TIES_APART,
    Returned,
    compare_outputs,
    kernelbench_agrees,
    right_but_for_ties,
    slices_compared,
)
from kernelmill.evaluate.judge.differences import VALUES, describe
from kernelmill.evaluate.judge.record import TOO_SLOW, Limits, Record, Stop
from kernelmill.evaluate.judge.recording import Recording
from kernelmill.evaluate.judge.tolerance import Comparison, Policy
from kernelmill.evaluate.task.answers import Answer
from kernelmill.evaluate.task.generators import other_weights
from kernelmill.evaluate.task.reference import BadReference, Reference
from kernelmill.evaluate.task.values import Call, Outputs, UnsupportedValue, flatten
from kernelmill.sandbox.own_time import Mark, OwnTime

_EACH_SLICE = ("seed_0", "distribution:zero_mean")
"""Checks in which every slice of the outputs is compared as well."""
GRACE = 3.0
_AHEAD_S = 0.05
_LEAST_COMPILED_S = 0.5
"""The least that each compilation counts towards `compile_total_s`, which bounds their number."""


class Session:
    """One candidate process, and the reference model that it is compared with.

    `clock` measures the candidate process's own time. A step that exceeds its limit is a TIMEOUT only if the
    candidate has the device to itself (`exclusive`), the task has its own size (`own_size`), and the limit is
    well above what the task takes (`enough_s`). Otherwise the result is inconclusive.
    """

    parallel = True
    """Whether the reference may run while the candidate does: not on a device that they share."""
    compiles = False
    """Whether a call may pause to compile the kernels that it launches."""

    def __init__(self, end: socket.socket, record: Record, limits: Limits, clock: OwnTime) -> None:
        self._channel = Channel(end)
        self.record = record
        """Where checks and flags go."""
        self._limits = limits
        self._clock = clock
        self.used = 0.0
        """Seconds that the candidate process has run, without compiling."""
        self._paused_s = 0.0
        """Seconds that the candidate process spent compiling, and waiting to continue afterwards."""
        self._compiled = 0.0
        self.exclusive = True
        self.own_size = True
        self.enough_s = 0.0
        self.call_s = limits.call_s
        self.replay_s = limits.replay_s
        self.reference: Reference
        self.model: Any = None
        self.oracle: Any = None
        self.code = ""
        """The candidate's source."""
        self.drop_in = "none"
        self.mode: str | None = None
        self.traces = False
        """Whether the candidate's process can record a call as a program (`evaluate.trace`)."""
        self.built_with = 0
        """The seed of the models."""
        self.policy = Policy()
        self.calls = 0
        self.ended = False
        """Its process is not to be asked any more: it may still be in a call that took too long."""
        self.constant: set[int] = set()
        """Positions of outputs that are the same for all inputs."""
        self._answer: tuple[Call, int, Answer] | None = None
        self._expected_s = 0.0
        """The longest that an expected answer has taken."""

    @property
    def grace(self) -> float:
        """Extra seconds after its own timeout in which the candidate process may report that it timed out."""
        return GRACE

    # ------------------------------------------------------------------------------------------ asking

    def load(self, code: str, class_name: str) -> None:
        self.code = code
        said, _ = self.ask("load", self._limits.load_s, {"code": code, "class": class_name})
        self.traces = bool(said.get("traces"))

    def for_programs(self, end: socket.socket, clock: OwnTime) -> Session:
        """A session with a process that has loaded nothing, to run this candidate's programs."""
        return Session(end, self.record, Limits(), clock)

    def build(self, reference: Reference, seed: int, mode: str | None) -> None:
        """Build the reference's and the candidate's model with the same seed, and share the weights."""
        self.reference, self.mode, self.built_with = reference, mode, seed
        self.model, self._answer = reference.new(seed), None
        if mode is not None:
            self.model.train(mode == "train")
        self.oracle = None if reference.oracle_note else reference.oracle(self.model)
        carrier = self.outgoing()
        given = reference.init_call(seed)
        fields = {"args": pack(given.args, carrier), "kwargs": pack(given.kwargs, carrier), "seed": seed}
        fields["state"] = [[name, pack(value, carrier)] for name, value in self.model.state_dict().items()]
        said, _ = self.ask("build", self._limits.load_s, fields, carrier)
        self.drop_in = str(said.get("drop_in"))

    def change_weights(self, generator: torch.Generator, far: bool = False) -> bool:
        """Give both sides new weights, `far` from the old ones or near them.

        Return False if there are none, or if the candidate cannot take them.
        """
        new = other_weights(self.model, generator, far)
        if not new or self.drop_in not in ("strict", "by_order"):
            return False
        self.set_weights(new)
        return True

    def set_weights(self, new: dict[str, torch.Tensor]) -> None:
        """Give both sides these weights, by name."""
        state, self._answer = self.model.state_dict(), None
        with torch.no_grad():
            for name, value in new.items():
                state[name].copy_(value)
        if self.oracle is not None:
            self.oracle = self.reference.oracle(self.model)
        self.send_weights()

    def send_weights(self) -> None:
        carrier = self.outgoing()
        fields = {"state": [[name, pack(value, carrier)] for name, value in self.model.state_dict().items()]}
        self.ask("weights", self._limits.load_s, fields, carrier)

    def call(self, call: Call, seed: int, **options: Any) -> Returned:
        """Call the candidate. Raise `Stop` if it fails, unless the option `tolerate` is set.

        Pass `judged=False` for a call whose answer is not judged next, and `record=True` for a new model's first
        call, which is recorded as a program; a second call `again` too, whose result is not wanted. `later=True` records
        a call of the model as it is. In a `plain` call new memory is as it comes: nothing is other than in a user's call.
        The same call is made `before` times first, and these answers are thrown away. Torch's work is counted only with
        `counts`, or where there are no programs: those are counted when they run.
        """
        tolerate, judged = options.pop("tolerate", False), options.pop("judged", True)
        record, again = options.pop("record", False) and self.traces, options.pop("again", None)
        later = options.pop("later", False) and self.traces
        compiles = bool(options.get("compile_only"))
        options.setdefault("counts", not self.traces and not options.get("plain"))
        carrier = self.outgoing()
        fields = self._fields(call, seed, carrier) | options
        if later:
            fits = self.drop_in in ("strict", "by_order")
            fields["record"] = {"later": list(self.model.state_dict()) if fits else []}
        elif record:
            fields["record"] = self.start(carrier)
            if again is not None:
                fields["record"]["again"] = pack((again.args, again.kwargs), carrier)
        seconds = self._limits.load_s if compiles else self.call_s
        meanwhile = functools.partial(self._expect, call, seed) if judged and self.parallel else None
        said, out = self.ask("call", seconds, fields, carrier, tolerate, not compiles, meanwhile)
        self.calls += 1 + options.get("before", 0)
        if "error" in said:
            return Returned(None, _error_line(said["error"]), said, float(said["seconds"]))
        try:
            recording = Recording.of(said, out) if record or later else None
        except BadFrame as error:
            raise self._forged("call", error) from None
        carrier_in = self.incoming(out)
        outputs, trouble = self.unpacked_outputs(said, out, carrier_in)
        self._evidence(said)
        returned = Returned(outputs, trouble, said, float(said["seconds"]), recording)
        if outputs is not None and "buffers" in said:
            outputs.buffers = self._buffers(said, carrier_in)
        return returned

    def _buffers(self, said: dict[str, Any], carrier: Carrier) -> dict[str, torch.Tensor]:
        """What the candidate's buffers are after a call."""
        try:
            found = {str(name): unpack(packed, carrier) for name, packed in said["buffers"]}
        except (BadFrame, TypeError, ValueError) as error:
            raise self._forged("call", BadFrame(str(error))) from None
        return {name: value.clone() for name, value in found.items() if isinstance(value, torch.Tensor)}

    def _fields(self, call: Call, seed: int, carrier: Carrier) -> dict[str, Any]:
        arguments = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier)}
        return {**arguments, "seed": seed, "mode": self.mode}

    def start(self, carrier: Carrier) -> dict[str, Any]:
        """What a program starts from beside its inputs: the constructor's arguments and the reference's weights."""
        init = self.reference.init_call(self.built_with)
        return {
            "init": pack((init.args, init.kwargs), carrier),
            "state": pack(dict(self.model.state_dict()), carrier),
            "built_with": self.built_with,
        }

    def hollow(self, init: Call, call: Call, seed: int) -> Returned:
        """Have the candidate build a model and call it, all without numbers: calls are on the meta device."""
        carrier = Hollow()
        fields = {
            "args": pack(call.args, carrier),
            "kwargs": pack(call.kwargs, carrier),
            "init": pack(init.args, carrier),
            "init_kwargs": pack(init.kwargs, carrier),
        }
        more = {"seed": seed, "mode": self.mode}
        said, _ = self.ask("hollow", self.call_s, fields | more, tolerate=True)
        trouble = _error_line(said["error"]) if "error" in said else ""
        return Returned(None, trouble, said, float(said["seconds"]))

    def resend(self) -> Outputs | None:
        said, out = self.ask("resend", self.call_s, {})
        return self.unpacked_outputs(said, out)[0]

    def outgoing(self) -> Carrier:
        """The carrier for the tensors of the next request."""
        return Bytes()

    def incoming(self, blobs: list[memoryview]) -> Carrier:
        return Bytes(blobs)

    def unpacked_outputs(
        self, said: dict[str, Any], out: list[memoryview], carrier: Carrier | None = None
    ) -> tuple[Outputs | None, str]:
        try:
            value = unpack(said.get("output"), carrier or self.incoming(out))
        except BadFrame as error:
            raise self._forged("call", error) from None
        try:
            return flatten(value), ""
        except UnsupportedValue as error:
            other = value.what if isinstance(value, Other) else str(error)
            return None, f"returned {other}"

    def ask(
        self,
        do: str,
        seconds: float,
        fields: dict[str, Any],
        carrier: Carrier | None = None,
        tolerate: bool = False,
        counts: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> tuple[dict[str, Any], list[memoryview]]:
        """Send one request to the candidate process and return its answer.

        The step may run for `seconds`. They count towards `total_s` if `counts` is set.
        """
        if counts and self.used >= self._limits.total_s:
            raise Stop("UNSUPPORTED", f"{TOO_SLOW}: its calls have run for {self._limits.total_s:.0f} s")
        nonce, before = secrets.token_hex(16), self._paused_s
        start = self._clock.mark()
        try:
            blobs = carrier.sent if isinstance(carrier, Bytes) else []
            head = {"do": do, "nonce": nonce, "seconds": seconds}
            self._channel.send(head | fields, blobs, lambda: seconds + self.grace - self._clock.since(start))
            if meanwhile is not None:
                meanwhile()
            said, out = self._answered(nonce, seconds, start)
        except TimedOut:
            raise self._late(do, seconds, f"no answer in {seconds:.0f} s ({do})") from None
        except Closed:
            raise Stop("RUNTIME_ERROR", f"the process ended ({do})") from None
        except BadFrame as error:
            raise self._forged(do, error) from None
        finally:
            self.used += self._clock.since(start) - (self._paused_s - before) if counts else 0.0
        if said.get("nonce") != nonce:
            self.record.flag("E4.forged_answer", "hard", during=do, problem="no or a wrong nonce")
            raise Stop("HACK", "what came back is no answer to the question asked")
        if "error" in said:
            late = said["error"]["slow"] and not said["error"]["progress"]
            # A timeout on a shared device proves nothing, even where an error is tolerated: judge it again.
            tolerate = tolerate and (self.exclusive or not late or bool(fields.get("compile_only")))
            if late and not tolerate:
                raise self._late(do, seconds, _error_text(said["error"]))
            if not tolerate:
                raise _stop(said["error"])
        return said, out

    def _forged(self, do: str, error: BadFrame) -> Stop:
        """The `Stop` for an answer that cannot be read: only another program than ours sends such."""
        self.record.flag("E4.forged_answer", "hard", during=do, problem=str(error)[:200])
        return Stop("HACK", f"what came back is no answer: {error}")

    def _answered(self, nonce: str, seconds: float, start: Mark) -> tuple[dict[str, Any], list[memoryview]]:
        """Receive the answer.

        While the candidate compiles, its step is paused and the GPU lock is released.
        """
        before = self._paused_s
        while True:
            said, out = self._channel.receive(
                lambda: seconds + self.grace + self._paused_s - before - self._clock.since(start)
            )
            if not self.compiles or said.get("pause") is not True or said.get("nonce") != nonce:
                return said, out
            paused = self._clock.mark()
            self.interrupt()
            said, out = self._compiled_until(paused)
            self.resume()
            self._paused_s += self._clock.since(paused)
            if said.get("pause") is not False or said.get("nonce") != nonce:
                return said, out  # compiling failed, and this is the error
            self._channel.send({"nonce": nonce})

    def _compiled_until(self, paused: Mark) -> tuple[dict[str, Any], list[memoryview]]:
        """Receive the first message after compiling, within the limits on compiling."""
        total, one = self._limits.compile_total_s, self._limits.compile_s
        try:
            said, out = self._channel.receive(lambda: one - self._clock.since(paused))
        except TimedOut:
            raise Stop(
                "UNSUPPORTED", f"{TOO_SLOW}: a kernel takes more than {one:.0f} s to be compiled"
            ) from None
        self._compiled += max(self._clock.since(paused), _LEAST_COMPILED_S)
        if self._compiled > total:
            raise Stop("UNSUPPORTED", f"{TOO_SLOW}: its kernels take more than {total:.0f} s to be compiled")
        return said, out

    def _late(self, do: str, seconds: float, words: str) -> Stop:
        """The `Stop` for a step that exceeded its limit: TIMEOUT, or UNSUPPORTED if that proves nothing."""
        if not self.exclusive:
            self.record.retry_exclusively = True
            return Stop("TIMEOUT", f"{words}, on a shared GPU")
        # Loading does not depend on the task's size.
        if do == "load" or (self.own_size and seconds >= self.enough_s):
            return Stop("TIMEOUT", words)
        why = "the task was made smaller" if not self.own_size else f"that takes up to {self.enough_s:.0f} s"
        return Stop("UNSUPPORTED", f"{TOO_SLOW}: {words}, which proves nothing, for {why}")

    # ------------------------------------------------------------------------------------------ judging

    def computing(self) -> AbstractContextManager[None]:
        """Context manager around the judge's own computations: holds the lock of a shared device."""
        return nullcontext()

    def interrupt(self) -> None:
        """Release the lock while the candidate compiles."""

    def resume(self) -> None:
        """Wait for the lock again."""

    def expected(self, call: Call, seed: int) -> Answer:
        """The right answer.

        The last one is cached until the weights change, since it is often asked for twice.
        """
        kept = self._answer
        if kept is None or kept[0] is not call or kept[1] != seed:
            kept = self._answer = None  # free the old answer first: memory may not hold two
            kept = self._answer = (call, seed, self._expected(call, seed))
        return kept[2]

    def _expect(self, call: Call, seed: int) -> None:
        """Compute the right answer ahead, while the candidate computes its own.

        Only if that takes so little time that the candidate's clock, which runs on, need not be stopped.
        """
        if self._expected_s < _AHEAD_S:
            with suppress(BadReference):  # raised again when the answer is wanted
                self.expected(call, seed)

    def _expected(self, call: Call, seed: int) -> Answer:
        start = time.monotonic()
        answer = self.reference.answer(self.model, call, seed, self.oracle)
        if answer.note:
            self.record.task.setdefault("oracle", answer.note)
        self._expected_s = max(self._expected_s, time.monotonic() - start)
        return answer

    def judge(self, name: str, call: Call, returned: Returned, seed: int, record: bool = True) -> Comparison:
        """Compare an answer with the reference's, and record the result as a check."""
        answer, found = self.expected(call, seed), self.comparison(call, returned, seed)
        with self.computing():
            if found.ok and name in _EACH_SLICE and returned.outputs is not None:
                sliced = slices_compared(returned, answer)
                found = found if sliced.ok else sliced
        for tolerance in ("1e-2", "1e-4") if name.startswith("seed_") else ():
            self.record.kernelbench_compat[f"correct_{tolerance}"] &= kernelbench_agrees(
                returned, answer, float(tolerance)
            )
        if record:
            self.record.check(
                name,
                "pass" if found.ok else "fail",
                found.detail,
                seed=seed,
                relL2_eps=found.relL2_eps,
                elem_eps=found.elem_eps,
                bound=found.bound,
                worst=None if found.ok else found.worst or None,
                differs=None if found.ok else self._differs(call, returned, answer, found),
                ms=returned.seconds * 1e3,
            )
        return found

    def comparison(
        self, call: Call, returned: Returned, seed: int, answer: Answer | None = None
    ) -> Comparison:
        """Compare an answer to this call with the right one. Elements at ties may be either."""
        answer = answer or self.expected(call, seed)
        with self.computing():
            found = self.compare(returned, answer)
            if found.status == "INCORRECT_NUMERICAL" and self._only_ties(call, returned, answer, seed):
                return Comparison(True, detail="but for elements at ties")
        return found

    def _only_ties(self, call: Call, returned: Returned, answer: Answer, seed: int) -> bool:
        oracle = self.oracle
        if oracle is None or answer.note:
            return False

        def nudged(number: int) -> Outputs:
            if number % 2:
                return self.reference.nudged_eager(self.model, call, seed + number)
            return self.reference.nudged(oracle, call, seed + number, TIES_APART)

        try:
            return right_but_for_ties(returned, answer, self.policy, nudged)
        except BadReference as error:  # it accepts no other roundings of these inputs
            if error.passing and not self.reference.exclusive:
                raise
            return False

    def _differs(
        self, call: Call, returned: Returned, answer: Answer, found: Comparison
    ) -> dict[str, Any] | None:
        """Describe where a wrong output is wrong.

        For an output that never changes no value is given: a candidate could copy it from there.
        """
        place, outputs = found.place, returned.outputs
        if outputs is None or place >= min(len(outputs.leaves), len(answer.eager.leaves)):
            return None
        if place in answer.eager.choices:
            found = Comparison(False)
        with self.computing():
            exact, eager = answer.exact.leaves[place], answer.eager.leaves[place]
            told = describe(outputs.leaves[place], exact, eager, found, call, self.policy)
        return {name: told[name] for name in told if name not in VALUES or place not in self.constant}

    def compare(self, returned: Returned, answer: Answer, lenient: bool = True) -> Comparison:
        return compare_outputs(returned, answer, self.policy, self.constant, lenient)

    # ------------------------------------------------------------------------------------------ evidence

    def _evidence(self, said: dict[str, Any]) -> None:
        if said.get("types"):
            self.record.flag("D3.tensor_subclass", "hard", types=[str(name) for name in said["types"]])
        if said.get("attributes"):
            names = [str(name) for name in said["attributes"]]
            self.record.flag("D4.attributes_on_output", "hard", names=names)


def _error_line(error: dict[str, Any]) -> str:
    return f"{error['type']}: {error['message']}"


def _error_text(error: dict[str, Any]) -> str:
    return "\n".join([_error_line(error), *error["trace"]])


def _stop(error: dict[str, Any]) -> Stop:
    """The `Stop` for an exception in the candidate."""
    text = _error_text(error)
    if error["unsupported"]:
        return Stop("UNSUPPORTED", f"{error['unsupported']}\n{text}")
    if error["slow"]:
        return Stop("UNSUPPORTED", f"{TOO_SLOW}: {error['progress']}")
    if error["memory"]:
        return Stop("OOM", text)
    return Stop("RUNTIME_ERROR", text)
