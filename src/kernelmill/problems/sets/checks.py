"""Checks of every problem of a set, each in a sandboxed process.

A problem should run at its own size, run small, and tell candidates apart. A problem that runs at
neither size is not imported. One that runs but is not admitted is imported, with the reasons. Problems that
use `transformers` have their own worker, and need it to be installed.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kernelmill.evaluate.task import offline_models
from kernelmill.problems.facts import sandbox_failure
from kernelmill.problems.sets.problem import Checked, FullSize, Problem, Rejected
from kernelmill.runner import ItemProgress, Threads, run_all
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.pool import Pool

WORKER = "kernelmill.problems.sets.check_worker"
MEMORY_MB = 6144
_NOT_INSTALLED = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def check_all(
    problems: list[Problem],
    known: Mapping[str, Checked],
    note: Callable[[Checked], None],
    workers: int,
    timeout: float,
) -> tuple[list[Checked], list[Rejected]]:
    """Check problems that are not `known` by hash, and `note` each at once.

    Results are in the given order.
    """
    no_hub = importlib.util.find_spec("transformers") is None

    def known_result(one: Problem) -> Checked | Rejected | None:
        if (before := known.get(one.sha256)) is not None:
            # The same text may have another name or number now.
            return msgspec.structs.replace(
                before, level=one.level, problem_id=one.problem_id, name=one.name, file=one.file
            )
        return Rejected(one.where, _needs("transformers")) if one.uses_hub and no_hub else None

    def done(result: Checked | Rejected) -> None:
        if isinstance(result, Checked):
            note(result)

    def server(environment: Mapping[str, str]) -> Sandbox:
        return Sandbox(WORKER, workers, timeout, MEMORY_MB, environment=environment)

    def check(one: Problem) -> Checked | Rejected:
        return _checked(one, servers.get(offline_models.environment_for(one.code, "small")))

    with Pool(server) as servers:
        found = run_all(
            problems,
            lambda _: Threads(check, workers, servers),
            ItemProgress("problems checked"),
            lambda one: one.name,
            known=known_result,
            done=done,
        )
    return [one for one in found if isinstance(one, Checked)], [
        one for one in found if isinstance(one, Rejected)
    ]


def _checked(one: Problem, sandbox: Sandbox) -> Checked | Rejected:
    request = {"code": one.code, "entry_point": "Model"}
    full = sandbox.run_sync({**request, "step": "full"})
    shrunk = sandbox.run_sync({**request, "step": "shrunk"})
    return _result(one, full, shrunk)


def _result(one: Problem, full: Reply, shrunk: Reply) -> Checked | Rejected:
    found, full_error = None, None
    if full["kind"] != "ok":
        full_error = sandbox_failure(full)
    else:
        try:
            found = msgspec.convert(full["result"], FullSize)
        except msgspec.ValidationError as error:
            full_error = f"the process answered something else: {error}"
    answer: dict[str, Any]
    if shrunk["kind"] == "ok":
        answer = shrunk["result"]
    else:
        reason = f"it cannot be tried: {sandbox_failure(shrunk)}"
        answer = {"admitted": False, "reasons": [reason], "details": {}}
    details = answer.get("details")
    size = details.get("size") if isinstance(details, dict) else None
    reasons = [str(reason) for reason in answer.get("reasons", [])]
    if found is None and size is None:
        if missing := _NOT_INSTALLED.match(full_error or ""):
            return Rejected(one.where, _needs(missing[1]))
        return Rejected(one.where, f"it does not run: {full_error}; small: {'; '.join(reasons)}")
    return Checked(
        one.level, one.problem_id, one.name, one.file, one.sha256, one.uses_hub, found, full_error,
        size, bool(answer.get("admitted")), reasons,
    )  # fmt: skip


def _needs(package: str) -> str:
    return f"it needs {package}, which is not installed (pip install 'kernelmill[eval,problems]' has what KernelBench needs)"
