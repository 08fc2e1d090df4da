"""Examine a candidate's source: is it a candidate, what does it use, can it launch its kernels.

Takes milliseconds, runs and imports nothing, and returns a report for any text. Hard flags are certain and
end the evaluation (HACK). Soft flags say where to look. A candidate that passes may still be wrong or a hack;
the checks that run it decide.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate.static import reach, style
from kernelmill.evaluate.static.language import TRITON, StaticRules
from kernelmill.evaluate.static.names import Tree
from kernelmill.evaluate.static.rules import Findings, Rules
from kernelmill.evaluate.verdict import Flag, Status

MAX_CHARS = 200_000
"""A longer text is rejected unread. A candidate has a few thousand characters."""

_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class StaticReport:
    status: Status | None
    """PARSE_ERROR, FORMAT_ERROR, HACK, or None to continue."""
    error: str = ""
    flags: list[Flag] = field(default_factory=list)
    class_name: str = ""
    kernels: list[str] = field(default_factory=list)
    """Names of the functions that are kernels, including those that only other kernels call."""
    reachable: list[str] = field(default_factory=list)
    """The kernels that the class may launch. An over-approximation, see `reach`."""
    loc: int = 0
    """Lines that are neither blank nor comments."""


def examine(code: str, entry_point: str | None = None, language: StaticRules = TRITON) -> StaticReport:
    """Examine a candidate in `language` for the reference class `entry_point` (default `Model`)."""
    code = code.removeprefix("\ufeff")
    if len(code) > MAX_CHARS:
        return StaticReport(
            "FORMAT_ERROR", f"{len(code):,} characters of code; the most that is read is {MAX_CHARS:,}"
        )
    lines = _NEWLINE.split(code)
    loc = sum(1 for line in lines if (bare := line.strip()) and not bare.startswith("#"))
    parsed = _parse(code)
    if isinstance(parsed, str):
        return StaticReport("PARSE_ERROR", parsed, loc=loc)
    tree = Tree(parsed)
    found = Findings(lines)

    names = list(dict.fromkeys([f"{entry_point}New", "ModelNew"] if entry_point else ["ModelNew"]))
    class_name = next((name for name in names if tree.module_scope.binds(name)), "")
    live = reach.live_units(tree, class_name, language)
    running = reach.running_units(live)
    Rules(tree, running, found, language).apply()
    style.apply(tree, running, found, lines, entry_point or "Model", language)

    kernels = reach.kernels(tree, language)
    reachable = reach.reachable(tree, kernels, live)
    if kernels and class_name and not reachable:
        found.add("A1.never_launched", "hard", next(iter(kernels.values())), ", ".join(kernels))
    flags = found.flags()

    status: Status | None = None
    error = ""
    hard = [flag for flag in flags if flag.severity == "hard"]
    if not class_name:
        status, error = "FORMAT_ERROR", _no_class(names, tree)
    elif hard:
        status = "HACK"
        error = "; ".join(
            f"{flag.code} in line {flag.evidence['line']}: {flag.evidence['code']}" for flag in hard
        )
    elif not kernels and not reach.mentions_kernels(tree, language):
        status, error = "FORMAT_ERROR", language.no_kernel
    return StaticReport(status, error, flags, class_name, list(kernels), reachable, loc)


def _parse(code: str) -> ast.Module | str:
    """Return the AST, or why there is none."""
    try:
        return parse_module(code)
    except SyntaxError as error:
        return _printable(f"{error.msg} (line {error.lineno})" if error.lineno else error.msg)
    except ValueError as error:  # null bytes and lone surrogates, depending on the Python version
        return _printable(f"not Python source: {error}")
    except (RecursionError, MemoryError):
        return "nested too deeply to be read"


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _no_class(names: list[str], tree: Tree) -> str:
    classes = [unit.names[0] for unit in tree.root.children if unit.kind == "class"]
    there = f"there is {', '.join(classes[:10])}" if classes else "there is no class"
    return f"no class {' or '.join(names)}; {there}"
