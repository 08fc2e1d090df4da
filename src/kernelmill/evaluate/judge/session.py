"""The judge's talk with one candidate process, and the judgement of each answer.

`Session` asks (`load`, `build`, `call` …) and raises `Stop` when the candidate cannot go on; `Record` collects checks and
flags. What to ask is in `probes`.
"""

from __future__ import annotations

import os
import secrets
import socket
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.judge.channel import (
    BadFrame,
    Bytes,
    Carrier,
    Channel,
    Closed,
    Other,
    TimedOut,
    pack,
    unpack,
)
from kernelmill.evaluate.judge.choices import compare_leaf
from kernelmill.evaluate.judge.differences import VALUES, describe
from kernelmill.evaluate.judge.tolerance import Comparison, Policy, compare_scalars, is_scalar, kb_compat
from kernelmill.evaluate.task.generators import other_weights
from kernelmill.evaluate.task.reference import Answer, BadReference, Reference
from kernelmill.evaluate.task.values import Call, Outputs, Unsupported, flatten
from kernelmill.evaluate.verdict import BAD_REFERENCE, Check, Flag, Grade, Result, Severity, Status
from kernelmill.sandbox.own_time import Mark, OwnTime

_LOOK_EVERY = 8
_OFTEN = ("call", "time")
GRACE = 3.0
"""Seconds that a candidate's process has beyond its own time-out to say that it timed out."""
_LEAST_COMPILED_S = 0.5
"""What each kernel costs of the time for compiling, so that they are not without number."""
TOO_SLOW = "too slow to be judged here"
"""How the error begins where a limit cut a candidate off that was not shown never to end."""
_WORST_LAST: tuple[Status, ...] = ("INCORRECT_NUMERICAL", "NONFINITE", "INCORRECT_SHAPE", "INCORRECT_DTYPE")


class Stop(Exception):
    """The candidate's fate is decided."""

    def __init__(self, status: Status, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


def _our_fault(error: Exception) -> str:
    """What went wrong in the judge, and where: in the reference's code, or in ours."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    places = ", ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames)
    return f"{type(error).__name__}: {error} ({places})"


@contextmanager
def settling(record: Record) -> Iterator[None]:
    """What ends a judgement inside is in the record afterwards. Running out of memory is for the process to tell."""
    try:
        yield
    except Stop as stop:
        record.status, record.error = stop.status, stop.error
    except BadReference as error:
        # What is so each time is a verdict; what may be otherwise the next time is to be judged again.
        record.status = "INFRA_ERROR" if error.passing else "UNSUPPORTED"
        record.error = f"{BAD_REFERENCE}: {error}"
    except torch.cuda.OutOfMemoryError as error:
        record.status, record.error = "INFRA_ERROR", f"the reference does not fit: {error}"
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the verdict says so, and where
        record.status, record.error = "INFRA_ERROR", _our_fault(error)
    nobody_knows = record.status == "INFRA_ERROR" or (
        record.status == "UNSUPPORTED" and not record.error.startswith(TOO_SLOW)
    )
    if record.hard() and not nobody_knows:  # who is caught does not get away by being slow
        record.status = "HACK"


@dataclass
class Limits:
    """Seconds that a candidate's process may run by itself (`isolate.own_time`); waiting for others does not count."""

    load_s: float = 20.0
    call_s: float = 10.0
    total_s: float = 60.0
    """For all calls together: who needs more is too slow to be judged, not wrong."""
    compile_s: float = 60.0
    """For compiling one kernel in one configuration, on a GPU. No part of `total_s`."""
    compile_total_s: float = 600.0
    """For all that are compiled: tuners have many configurations."""


@dataclass
class Record:
    """What the judge found, to be made into a verdict."""

    checks: list[Check] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    grade: Grade = field(default_factory=Grade)
    kb: dict[str, bool] = field(default_factory=lambda: {"correct_1e-2": True, "correct_1e-4": True})
    signatures: list[dict[str, Any]] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    task: dict[str, Any] = field(default_factory=dict)
    status: Status = "PASSED"
    error: str = ""
    again_alone: bool = False
    """It timed out beside others, which tells nothing: it is to be judged again, with nobody else on the device."""

    def check(self, name: str, result: Result, detail: str = "", **rest: Any) -> None:
        self.checks.append(Check(name, result, detail, **rest))

    def flag(self, code: str, severity: Severity, **evidence: Any) -> None:
        if not any(flag.code == code for flag in self.flags):
            self.flags.append(Flag(code, severity, evidence))

    def hard(self) -> bool:
        return any(flag.severity == "hard" for flag in self.flags)


@dataclass
class Returned:
    """A candidate's answer to a call. `outputs` is None where it returned something that does not cross."""

    outputs: Outputs | None
    trouble: str
    said: dict[str, Any]
    seconds: float

    @property
    def launched(self) -> list[dict[str, Any]]:
        """Launches of kernels of the candidate's own that ran at least one program."""
        return [
            launch for launch in self.said["observed"]["launches"] if launch["own"] and launch["programs"]
        ]


class Session:
    """One candidate process, and the reference's model that it is compared with.

    `clock` is that process's own time. What a limit cuts off is a TIMEOUT only where it is shown not to end: nobody else
    on the device (`alone`), the task at its own size (`own_size`), and the limit well above what the task takes
    (`enough_s`). Otherwise nobody knows.
    """

    grace = GRACE
    compiles = False
    """Whether a call may be interrupted to compile what it launches."""

    def __init__(self, end: socket.socket, record: Record, limits: Limits, clock: OwnTime) -> None:
        self._channel = Channel(end)
        self._record = record
        self._limits = limits
        self._clock = clock
        self.used = 0.0
        """Seconds that the candidate's process has run, compiling apart."""
        self._apart = 0.0
        """Seconds in which it compiled, and waited to go on."""
        self._compiled = 0.0
        self.alone = True
        self.own_size = True
        self.enough_s = 0.0
        self.call_s = limits.call_s
        self.reference: Reference
        self.model: Any = None
        self.wide: Any = None
        self.drop_in = "none"
        self.mode: str | None = None
        self.policy = Policy()
        self.calls = 0
        self.constant: set[int] = set()
        """Outputs that are the same for all inputs, by place."""
        self._answer: tuple[Call, int, Answer] | None = None

    # ------------------------------------------------------------------------------------------ asking

    def load(self, code: str, class_name: str) -> None:
        self.ask("load", self._limits.load_s, {"code": code, "class": class_name})

    def build(self, reference: Reference, seed: int, mode: str | None) -> None:
        """Build the reference's model and the candidate's, with the same seed, and share the weights."""
        self.reference, self.mode = reference, mode
        self.model, self._answer = reference.new(seed), None
        if mode is not None:
            self.model.train(mode == "train")
        self.wide = None if reference.oracle_note else reference.oracle(self.model)
        carrier = self.outgoing()
        given = reference.init_call(seed)
        fields = {"args": pack(given.args, carrier), "kwargs": pack(given.kwargs, carrier), "seed": seed}
        fields["state"] = [[name, pack(value, carrier)] for name, value in self.model.state_dict().items()]
        said, _ = self.ask("build", self._limits.load_s, fields, carrier)
        self.drop_in = str(said.get("drop_in"))

    def change_weights(self, generator: torch.Generator) -> bool:
        """Give both sides other weights. False where there are none, or no way to give them to the candidate."""
        new = other_weights(self.model, generator)
        if not new or self.drop_in not in ("strict", "by_order"):
            return False
        state, self._answer = self.model.state_dict(), None
        with torch.no_grad():
            for name, value in new.items():
                state[name].copy_(value)
        if self.wide is not None:
            self.wide = self.reference.oracle(self.model)
        self.send_weights()
        return True

    def send_weights(self) -> None:
        carrier = self.outgoing()
        fields = {"state": [[name, pack(value, carrier)] for name, value in self.model.state_dict().items()]}
        self.ask("weights", self._limits.load_s, fields, carrier)

    def call(self, call: Call, seed: int, **options: Any) -> Returned:
        """Call the candidate. Raises `Stop` where it fails, unless `tolerate` is among the options."""
        tolerate, compiles = options.pop("tolerate", False), bool(options.get("compile_only"))
        carrier = self.outgoing()
        fields = {"args": pack(call.args, carrier), "kwargs": pack(call.kwargs, carrier), "seed": seed}
        fields.setdefault("mode", self.mode)
        seconds = self._limits.load_s if compiles else self.call_s
        said, out = self.ask("call", seconds, fields | options, carrier, tolerate, counts=not compiles)
        self.calls += 1
        if "error" in said:
            return Returned(None, _error_line(said["error"]), said, float(said["seconds"]))
        outputs, trouble = self._outputs(said, out)
        self._evidence(said)
        return Returned(outputs, trouble, said, float(said["seconds"]))

    def resend(self) -> Outputs | None:
        said, out = self.ask("resend", self.call_s, {})
        return self._outputs(said, out)[0]

    def outgoing(self) -> Carrier:
        """How the tensors of the next request cross."""
        return Bytes()

    def incoming(self, blobs: list[memoryview]) -> Carrier:
        return Bytes(blobs)

    def _outputs(self, said: dict[str, Any], out: list[memoryview]) -> tuple[Outputs | None, str]:
        value = unpack(said["output"], self.incoming(out))
        try:
            return flatten(value), ""
        except Unsupported as error:
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
    ) -> tuple[dict[str, Any], list[memoryview]]:
        """A step of the candidate's process, which may run for so many seconds; they count towards its total, or not."""
        if counts and self.used >= self._limits.total_s:
            raise Stop("UNSUPPORTED", f"{TOO_SLOW}: its calls have run for {self._limits.total_s:.0f} s")
        nonce, before = secrets.token_hex(16), self._apart
        start = self._clock.mark()
        try:
            blobs = carrier.sent if isinstance(carrier, Bytes) else []
            # Every function of torch's and triton's is compared, which takes milliseconds: not after each of many calls,
            # and not while the clock runs.
            look = do not in _OFTEN or (do == "call" and (self.calls < 2 or not self.calls % _LOOK_EVERY))
            head = {"do": do, "nonce": nonce, "seconds": seconds, "look": look}
            self._channel.send(head | fields, blobs, lambda: seconds + self.grace - self._clock.since(start))
            said, out = self._answered(nonce, seconds, start)
        except TimedOut:
            raise self._late(do, seconds, f"no answer in {seconds:.0f} s ({do})") from None
        except Closed:
            raise Stop("RUNTIME_ERROR", f"the process ended ({do})") from None
        except BadFrame as error:
            self._record.flag("E4.forged_answer", "hard", during=do, problem=str(error)[:200])
            raise Stop("HACK", f"what came back is no answer: {error}") from None
        finally:
            self.used += self._clock.since(start) - (self._apart - before) if counts else 0.0
        if said.get("nonce") != nonce:
            self._record.flag("E4.forged_answer", "hard", during=do, problem="no or a wrong nonce")
            raise Stop("HACK", "what came back is no answer to the question asked")
        self._guarded(said, do)
        if "error" in said:
            late = said["error"]["slow"] and not said["error"]["progress"]
            # Beside others that tells nothing, also where an error would: it is judged again.
            tolerate = tolerate and (self.alone or not late or bool(fields.get("compile_only")))
            if late and not tolerate:
                raise self._late(do, seconds, _error_text(said["error"]))
            if not tolerate:
                raise _stop(said["error"])
        return said, out

    def _answered(self, nonce: str, seconds: float, start: Mark) -> tuple[dict[str, Any], list[memoryview]]:
        """What comes back. While the other side says that it compiles, the time goes to that, and others have their turn."""
        before = self._apart
        while True:
            said, out = self._channel.receive(
                lambda: seconds + self.grace + self._apart - before - self._clock.since(start)
            )
            if not self.compiles or said.get("pause") is not True or said.get("nonce") != nonce:
                return said, out
            paused = self._clock.mark()
            self.interrupt()
            said, out = self._compiled_until(paused)
            self.resume()
            self._apart += self._clock.since(paused)
            if said.get("pause") is not False or said.get("nonce") != nonce:
                return said, out  # it gave up compiling, and says why
            self._channel.send({"nonce": nonce})

    def _compiled_until(self, paused: Mark) -> tuple[dict[str, Any], list[memoryview]]:
        """What is said next, after compiling."""
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
        """What it means that a step was cut off."""
        if not self.alone:
            self._record.again_alone = True
            return Stop("TIMEOUT", f"{words}, beside others")
        # Loading is the same at any size.
        if do == "load" or (self.own_size and seconds >= self.enough_s):
            return Stop("TIMEOUT", words)
        why = "the task was made smaller" if not self.own_size else f"that takes up to {self.enough_s:.0f} s"
        return Stop("UNSUPPORTED", f"{TOO_SLOW}: {words}, which proves nothing, for {why}")

    # ------------------------------------------------------------------------------------------ judging

    def computing(self) -> AbstractContextManager[None]:
        """Around what the judge computes: a turn, where there is a device to share."""
        return nullcontext()

    def interrupt(self) -> None:
        """Give a turn back for a while."""

    def resume(self) -> None:
        """Wait for it again."""

    def expected(self, call: Call, seed: int) -> Answer:
        """What is right. The last answer is kept until the weights change, for it is often asked for twice."""
        kept = self._answer
        if kept is None or kept[0] is not call or kept[1] != seed:
            kept = self._answer = None  # there may be no room for two
            kept = self._answer = (call, seed, self._expected(call, seed))
        return kept[2]

    def _expected(self, call: Call, seed: int) -> Answer:
        answer = self.reference.answer(self.model, call, seed, self.wide)
        if answer.note:
            self._record.task.setdefault("oracle", answer.note)
        return answer

    def judge(self, name: str, call: Call, returned: Returned, seed: int, record: bool = True) -> Comparison:
        """Compare with the reference, and note it as a check."""
        answer = self.expected(call, seed)
        with self.computing():
            found = self.compare(returned, answer)
        for tolerance in ("1e-2", "1e-4") if name.startswith("seed_") else ():
            self._record.kb[f"correct_{tolerance}"] &= _kb(returned, answer, float(tolerance))
        if record:
            self._record.check(
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

    def _differs(
        self, call: Call, returned: Returned, answer: Answer, found: Comparison
    ) -> dict[str, Any] | None:
        """Where a wrong output is wrong. Of one that never changes no value is told: it could be copied from that."""
        place, outputs = found.place, returned.outputs
        if outputs is None or place >= min(len(outputs.leaves), len(answer.eager.leaves)):
            return None
        if place in answer.eager.choices:
            found = Comparison(False)
        with self.computing():
            exact, eager = answer.exact.leaves[place], answer.eager.leaves[place]
            told = describe(outputs.leaves[place], exact, eager, found, call, self.policy)
        return {name: told[name] for name in told if name not in VALUES or place not in self.constant}

    def compare(self, returned: Returned, answer: Answer) -> Comparison:
        if returned.outputs is None:
            return Comparison(False, "INCORRECT_DTYPE", detail=returned.trouble)
        eager, exact = answer.eager, answer.exact
        got = returned.outputs
        if got.structure != eager.structure:
            return Comparison(
                False,
                "INCORRECT_SHAPE",
                detail=f"returned {got.structure[:200]}, expected {eager.structure[:200]}",
            )
        found = [
            (path, _lenient(compare_leaf(leaf, exact, eager, place, self.policy), eager.leaves[place]))
            for place, (path, leaf) in enumerate(zip(eager.paths, got.leaves, strict=True))
        ]
        wrong = [(path, one) for path, one in found if not one.ok]
        if not wrong:
            return max(
                (one for _, one in found), key=lambda one: one.relL2_eps or 0.0, default=Comparison(True)
            )
        path, worst = max(wrong, key=lambda one: _WORST_LAST.index(one[1].status or "INCORRECT_NUMERICAL"))
        worst.place = eager.paths.index(path)
        if worst.place in self.constant:  # a value of it could be copied: not even one is told
            worst.worst = {}
            if worst.status == "NONFINITE":
                worst.detail = "NaN or infinity where the reference has none, or the other way round"
        if worst.worst:
            worst.worst = {"output": path} | worst.worst
        worst.detail = f"{path}: {worst.detail}" if len(found) > 1 else worst.detail
        return worst

    def judge_scalars(self, results: list[tuple[Returned, Answer]]) -> Comparison | None:
        """Outputs of one or few numbers, of all seeds together; None where there are none."""
        first = results[0][1].eager
        for place, leaf in enumerate(first.leaves):
            if not (is_scalar(leaf) and leaf.is_floating_point()):
                continue
            columns = [
                (r.outputs.leaves[place], a.exact.leaves[place], a.eager.leaves[place])
                for r, a in results
                if r.outputs is not None and len(r.outputs.leaves) == len(a.eager.leaves)
            ]
            found = compare_scalars(columns, self.policy)
            if not found.ok or place == len(first.leaves) - 1:
                return found
        return None

    # ------------------------------------------------------------------------------------------ evidence

    def _guarded(self, said: dict[str, Any], do: str) -> None:
        guard = said.get("guard") or {}
        for event in guard.get("events", ()):
            self._record.flag(str(event["code"]), "hard", event=str(event["event"]), line=event["line"])
        if guard.get("tampered"):
            self._record.flag(
                "E1.tampers", "hard", names=[str(name) for name in guard["tampered"]], during=do
            )
        if guard.get("threads"):
            self._record.flag("D2.threads", "hard", threads=guard["threads"])
        if guard.get("settings"):
            self._record.flag("D11.changes_settings", "hard", names=[str(name) for name in guard["settings"]])

    def _evidence(self, said: dict[str, Any]) -> None:
        if said.get("types"):
            self._record.flag("D3.tensor_subclass", "hard", types=[str(name) for name in said["types"]])
        if said.get("attributes"):
            names = [str(name) for name in said["attributes"]]
            self._record.flag("D4.attributes_on_output", "hard", names=names)


def _lenient(found: Comparison, eager: torch.Tensor) -> Comparison:
    """One number alone is refused only if it is far off: its rounding may be bad luck. `judge_scalars` has the last word."""
    if (
        found.ok
        or found.status != "INCORRECT_NUMERICAL"
        or not is_scalar(eager)
        or not eager.is_floating_point()
    ):
        return found
    if (found.elem_eps or 0.0) < (64 if eager.element_size() <= 2 else 1e4):
        found.ok, found.status = True, None
    return found


def _error_line(error: dict[str, Any]) -> str:
    return f"{error['type']}: {error['message']}"


def _error_text(error: dict[str, Any]) -> str:
    return "\n".join([_error_line(error), *error["trace"]])


def _stop(error: dict[str, Any]) -> Stop:
    """What an exception in the candidate means."""
    text = _error_text(error)
    if error["unsupported"]:
        return Stop("UNSUPPORTED", f"{error['unsupported']}\n{text}")
    if error["slow"]:
        return Stop("UNSUPPORTED", f"{TOO_SLOW}: {error['progress']}")
    if error["memory"]:
        return Stop("OOM", text)
    return Stop("RUNTIME_ERROR", text)


def _kb(returned: Returned, answer: Answer, tolerance: float) -> bool:
    got = returned.outputs
    if got is None or len(got.leaves) != len(answer.eager.leaves):
        return False
    pairs = zip(got.leaves, answer.eager.leaves, strict=True)
    return all(kb_compat(c, e, tolerance) for c, e in pairs)
