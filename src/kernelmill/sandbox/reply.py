"""The outcome of a request to a sandbox, as the parent sees it, and how it follows from the server's event."""

from __future__ import annotations

import json
import signal
from typing import Any, Literal, TypedDict

from kernelmill.sandbox.wire import TOO_MUCH

OVERDUE = "overdue"
"""The `type` of a timeout because the GPU lock was held too long, and the `cut` of a draft ended by it."""
_Kind = Literal["ok", "error", "timeout", "crashed", "out_of_memory"]


class Reply(TypedDict):
    """The outcome of a request. `output` is the tail of what the child printed."""

    kind: _Kind
    result: dict[str, Any]
    type: str
    message: str
    seconds: float
    cpu: float
    """CPU seconds of the child and its companions."""
    output: str
    companions: list[str]
    """How each companion ended. `SIGKILL` is the server's, at the end of the request."""
    cut: str
    """Why `result` is only a draft that the child had left: `timeout`, or `overdue` (it held the GPU lock
    too long). Empty for a full reply."""


class Doing(TypedDict):
    """What a running request is doing. Times are `time.monotonic`, which all processes of a machine share."""

    label: str
    doing: str
    since: float
    gpu_lock: Literal["", "waits for exclusive use", "waits", "exclusive", "shared"]
    gpu_lock_since: float


def make_reply(kind: _Kind, **rest: Any) -> Reply:
    """Build a reply with the given fields, and the others empty."""
    reply = Reply(
        kind=kind, result={}, type="", message="", seconds=0.0, cpu=0.0, output="", companions=[], cut=""
    )
    reply.update(rest)  # type: ignore[typeddict-item]
    return reply


def reply_from_event(event: dict[str, Any], body: bytes) -> Reply:
    """Turn the server's event into a reply."""
    ends = [signal_name(-end) if end < 0 else f"status {end}" for end in event.get("companions", ())]
    rest = {
        "seconds": event["seconds"],
        "cpu": event["cpu"],
        "output": event["output"],
        "companions": ends,
        "cut": event.get("cut", ""),
    }
    how, status = event["how"], event["status"]
    if how == "reply":
        try:
            said = json.loads(body)
            if said["kind"] == "ok" and isinstance(said["result"], dict):
                return make_reply("ok", result=said["result"], **rest)
            if said["kind"] in ("error", "out_of_memory"):
                return make_reply(said["kind"], type=str(said["type"]), message=str(said["message"]), **rest)
        except (ValueError, RecursionError, TypeError, LookupError):
            pass  # not written by our child code
        how = "torn"
    if how == "torn":
        return make_reply("crashed", message="the reply was torn or forged", **rest)
    if how == "failed":
        return make_reply("crashed", message=event["message"], **rest)
    if how == "wrote":
        return make_reply("error", type="OSError", message=TOO_MUCH, **rest)
    if how == OVERDUE:
        message = f"held the GPU lock for too long, {event['seconds']:.1f} s after its start"
        return make_reply("timeout", type=OVERDUE, message=message, **rest)
    if how == "timeout" or status == -signal.SIGXCPU:
        return make_reply("timeout", message=f"timed out after {event['limit']:.1f} s", **rest)
    if status < 0:
        # C++ aborts with bad_alloc where Python raises MemoryError.
        kind: _Kind = "out_of_memory" if "bad_alloc" in event["output"] else "crashed"
        return make_reply(kind, message=f"killed by {signal_name(-status)}", **rest)
    return make_reply("crashed", message=f"exited with status {status} and no reply", **rest)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
