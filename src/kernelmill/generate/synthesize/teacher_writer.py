"""A writer that uses the Inductor compiler: no model, no key, no network.

Its output is deterministic. Several rollouts of a problem are its variants: kernels with different block
sizes, of which only a GPU can tell the fastest. Nothing is repaired: a rollout ends after its first answer.
If it cannot write a problem, the reason is the answer's `fault`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from typing import Any

from kernelmill import __version__
from kernelmill.generate.inductor.teacher import Teacher
from kernelmill.generate.inductor.variants import VARIANTS
from kernelmill.generate.synthesize.problems import CandidateRequest
from kernelmill.generate.synthesize.writer import Ended, WriterAnswer
from kernelmill.llm.engine import Messages
from kernelmill.llm.journal import Journal, JournalReader

_LIMITS = {"timeout": "time", "out_of_memory": "memory"}
"""What a sandboxed process exceeded, by kind of its reply."""


class TeacherWriter:
    """Stores what it writes as facts in the journal. `teacher` is None in a dry run, which only reads."""

    free = True

    def __init__(self, teacher: Teacher | None, journal: JournalReader, at_once: int) -> None:
        self._teacher, self._journal = teacher, journal
        self._version = f"{importlib.metadata.version('torch')}, kernelmill {__version__}"
        self.name = f"inductor of torch {importlib.metadata.version('torch')}"
        self.at_once = at_once

    def known(self, problem: CandidateRequest, messages: Messages) -> WriterAnswer | Ended | None:
        if messages != problem.messages:
            return Ended("the compiler")
        stored = self._journal.fact(self._key(problem))
        if stored is None:
            return None
        found = json.loads(stored)
        columns = {"extern": found["extern"], "captured_mode": found["mode"], "variant": _variant(problem)}
        if found["error"]:
            why, ours = _why_none(found)
            return WriterAnswer(
                "",
                fault=f"{why}: {found['error']}",
                no_candidate=ours,
                seconds=found["seconds"],
                columns=columns,
            )
        content = f"<answer>\n{found['code']}</answer>"
        return WriterAnswer(content, finish="stop", seconds=found["seconds"], columns=columns)

    async def write(self, problem: CandidateRequest, messages: Messages) -> None:
        assert self._teacher is not None
        assert isinstance(self._journal, Journal)
        module = problem.module
        made = await self._teacher.write(module.python_code, module.entry_point, _variant(problem))
        kept = {
            "code": made.code,
            "extern": made.extern,
            "mode": made.mode,
            "error": made.error,
            "fault": made.fault,
        }
        await self._journal.add_fact(self._key(problem), json.dumps(kept | {"seconds": made.seconds}))

    def check_breaker(self) -> None:
        """Do nothing: no endpoint is called."""

    def _key(self, problem: CandidateRequest) -> str:
        module = problem.module
        text = json.dumps([module.python_code, module.entry_point, _variant(problem), self._version])
        return f"taught:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"


def _why_none(found: dict[str, Any]) -> tuple[str, bool]:
    """Return why there is no candidate, and whether the cause is the teacher rather than the problem."""
    kind = found["error"].partition(":")[0]
    if kind in _LIMITS:
        return f"no candidate, the teacher ran out of {_LIMITS[kind]}", True
    if found.get("fault"):
        return "no candidate, a fault of the teacher's own, please report it", True
    return "not written", False


def _variant(problem: CandidateRequest) -> int:
    return problem.sample % len(VARIANTS)
