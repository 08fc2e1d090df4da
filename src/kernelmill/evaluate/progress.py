"""Show the progress of a batch or of one candidate on standard error.

The lines also say who has the GPU and, after a long time without a verdict, what each candidate waits for.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelmill.base.terminal import LINE, duration, fit, rate, say, shorten
from kernelmill.evaluate.verdict import Verdict
from kernelmill.runner.progress import ProgressLine, time_left
from kernelmill.sandbox import Doing

_LOOK_EVERY = 0.2
STALLED_AFTER = 120.0
"""Seconds without a verdict after which the candidates in progress are listed.

Repeats at the same interval.
"""
_NAMED = 8
_NAME = 24


@dataclass
class Now:
    """What an evaluator does at the moment. Times are those of `time.monotonic`."""

    candidates: list[tuple[str, str, float]] = field(default_factory=list)
    """In progress: id, phase, start of the phase."""
    gpus: dict[int, list[Doing]] = field(default_factory=dict)
    elsewhere: list[Doing] = field(default_factory=list)
    """What the processes of the interpreter and the compiler do."""

    def step(self, name: str) -> Doing | None:
        """The current step of a candidate."""
        found = [
            one for doing in (self.elsewhere, *self.gpus.values()) for one in doing if one["label"] == name
        ]
        return found[-1] if found else None


async def watch(name: str, doing: Callable[[], Now]) -> None:
    """Show what is done for one candidate: a live line on a terminal, otherwise one line for each step."""
    live, said, begun = sys.stderr.isatty(), "", time.monotonic()
    try:
        while True:
            told = _told(name, doing())
            took = duration(time.monotonic() - begun)
            if live:
                width = shutil.get_terminal_size((LINE, 24)).columns - 1
                line = fit([(0, f"{shorten(name, _NAME)}: {told}"), (1, took)], width)
                print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            elif told != said:
                room = LINE - len(f" ({took})")
                say(f"{fit([(0, f'{shorten(name, _NAME)}: {told}')], room)} ({took})")
            said = told
            await asyncio.sleep(_LOOK_EVERY)
    finally:
        if live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _told(name: str, now: Now) -> str:
    phase = next((phase for label, phase, _ in now.candidates if label == name), "static")
    step = now.step(name)
    if step is None:
        return {"static": "reads the text"}.get(phase, f"{phase}, a process starts")
    lock = f", {step['gpu_lock']}" if step["gpu_lock"] else ""
    return f"{phase}, {step['doing']}{lock}"


def holders(now: Now, clock: float) -> str:
    """One phrase for each GPU: who has it, since when, how many wait."""
    return "; ".join(_gpu(device, doing, clock) for device, doing in now.gpus.items() if doing)


def _gpu(device: int, doing: list[Doing], clock: float) -> str:
    exclusive = [one for one in doing if one["gpu_lock"] == "exclusive"]
    shared = sum(one["gpu_lock"] == "shared" for one in doing)
    waiting = sum(one["gpu_lock"].startswith("waits") for one in doing)
    if exclusive:
        one = exclusive[0]
        who = f"{one['label']} exclusive for {clock - one['gpu_lock_since']:.1f} s ({one['doing']})"
    else:
        who = f"{shared} at work" if shared else "idle"
    return f"GPU {device}: {who}" + (f", {waiting} wait" if waiting else "")


def waited_for(now: Now, clock: float) -> list[str]:
    """Lines that say what each candidate in progress does, the longest-running first."""
    lines = [line for line in holders(now, clock).split("; ") if line]
    longest = sorted(now.candidates, key=lambda one: one[2])
    for name, phase, since in longest[:_NAMED]:
        told = f"{name}: {phase} for {duration(clock - since)}"
        if (step := now.step(name)) is not None:
            told += f" ({step['doing']}{', ' + step['gpu_lock'] if step['gpu_lock'] else ''})"
        lines.append(told)
    if len(longest) > _NAMED:
        lines.append(f"and {len(longest) - _NAMED:,} more")
    return lines


class Progress(ProgressLine):
    """Progress of a batch of verdicts."""

    def __init__(
        self,
        owed: int,
        known: int,
        doing: Callable[[], Now],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock)
        self.done = 0
        self.seconds = 0.0
        self._owed = owed
        self._failed = 0
        self._doing = doing
        self._last = self._told = self._started
        self.say(f"{owed:,} to judge" + (f", {known:,} judged already" if known else ""))

    def __exit__(self, *error: object) -> None:
        self.seconds = self._clock() - self._started
        self._doing = Now
        self.say(self.line())

    def add(self, verdict: Verdict) -> None:
        self.done += 1
        self._failed += verdict.status == "INFRA_ERROR"
        self._last = self._clock()

    def show(self) -> None:
        clock = self._clock()
        if clock - max(self._last, self._told) >= STALLED_AFTER:
            stalled, self._told = duration(clock - self._last), clock
            self.say(f"no verdict for {stalled}. What is waited for:")
            for line in waited_for(self._doing(), clock):
                self.say(f"  {line}")
        super().show()

    def line(self, width: int = LINE) -> str:
        clock, now = self._clock(), self._doing()
        elapsed = clock - self._started
        longest = min(now.candidates, key=lambda one: one[2], default=None)
        return fit(
            [
                (0, f"{self.done:,} of {self._owed:,} judged"),
                (5, f"in {duration(elapsed)}"),
                (1, rate(self.done, elapsed)),
                (2, time_left(self.done, self._owed, elapsed)),
                (3, f"{self._failed:,} INFRA_ERROR" if self._failed else ""),
                (4, f"{shorten(longest[0], _NAME)}: {longest[1]}" if longest is not None else ""),
                (6, holders(now, clock)),
            ],
            width,
        )
