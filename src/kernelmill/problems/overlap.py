"""Whether a module is a problem of another set, in other clothes.

Two looks at it, both without names of its own, formatting, comments, docstrings, imports, `get_inputs` and whatever else of the file no class
needs, constructors that do nothing and variables that nobody reads:

- *same code*: the structure (`structure`) is equal;
- *n-grams*: the module holds most runs of three operations (`operations`) of the problem, in whatever order its functions stand and
  whatever else it does. Numbers do not count here.

Two or three operations in a row are in every other module: a problem with few runs must be there as a whole, and nothing beside it. Both
see code, not meaning: `x.relu()`, `torch.relu(x)` and `x.clamp(min=0)` are three different things.
"""

from __future__ import annotations

import ast
import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import ceil
from typing import Literal, NamedTuple

from kernelmill.base.no_gc import no_collector
from kernelmill.base.python_text import parse_module
from kernelmill.problems.operations import Function, nodes, operations
from kernelmill.problems.structure import does_nothing, flat, normal_form, structure_of, structure_of_tokens

NGRAM = 3
FLOOR = 3
"""A problem with fewer runs must be all there is in a module."""

How = Literal["same code", "n-grams"]


class Fingerprint(NamedTuple):
    """What is compared of a module."""

    key: bytes
    """Equal for modules that are the same code; empty where there is no class and no function."""
    runs: array[int]
    """The runs of operations as numbers, each once."""
    parsed: bool
    """Whether the text is Python. If not, nothing but the same text is the same."""


class Match(NamedTuple):
    problem: int
    how: How
    share: float
    """How much of the problem is in the module."""


class ProblemSet:
    """The problems that modules are compared with. `add` them all, then `finish`."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._runs: list[array[int]] = []
        self._same: dict[bytes, list[int]] = {}
        self._index: dict[int, list[int]] = {}
        self._small: dict[bytes, list[int]] = {}

    def add(self, problem: Fingerprint) -> None:
        number = len(self._runs)
        if problem.key:
            self._same.setdefault(problem.key, []).append(number)
        self._runs.append(problem.runs)

    def finish(self) -> None:
        """Build the index: each problem stands under so many of its rarest runs that a module without any of them cannot match.

        Runs that every problem has are looked up by nobody then, and the cost of a module does not grow with the set.
        """
        common = Counter(run for runs in self._runs for run in runs)
        for number, runs in enumerate(self._runs):
            if len(runs) < FLOOR:
                if runs:
                    self._small.setdefault(runs.tobytes(), []).append(number)
                continue
            for run in sorted(runs, key=lambda run: (common[run], run))[: len(runs) - self._needed(runs) + 1]:
                self._index.setdefault(run, []).append(number)

    def _needed(self, runs: array[int]) -> int:
        return max(1, ceil(self._share * len(runs) - 1e-9))

    def matches(self, module: Fingerprint) -> list[Match]:
        """The problems that this module is or holds, the surest first; of equals, the first in the set."""
        same = self._same.get(module.key, []) if module.key else []
        held = set(module.runs)
        candidates = {number for run in held for number in self._index.get(run, ())}.difference(same)
        found = [Match(number, "same code", 1.0) for number in same]
        small = self._small.get(module.runs.tobytes(), ())
        near = [Match(number, "n-grams", 1.0) for number in small if number not in same]
        for number in candidates:
            runs = self._runs[number]
            shared = sum(run in held for run in runs)
            if shared >= self._needed(runs):
                near.append(Match(number, "n-grams", shared / len(runs)))
        return found + sorted(near, key=lambda match: (-match.share, match.problem))


def fingerprints(codes: list[str]) -> list[Fingerprint]:
    """Of several texts, for a worker process."""
    with no_collector():
        return [fingerprint(code) for code in codes]


def fingerprint(code: str) -> Fingerprint:
    """Reads the text and runs nothing. Where it is not Python, says so and takes it as text."""
    code = code.removeprefix("\ufeff")  # some editors put it there, and Python does not read it
    try:
        tree = parse_module(code)
        tree.body = list(flat(tree.body))
        idle = _idle(tree)
        tokens, unneeded = normal_form(tree, idle)
        removed = {*unneeded, *idle}
        functions = list(operations(tree, removed))
        runs = {run for function in functions for run in _runs(function)} if _calls(functions) else set()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Fingerprint(structure_of(code).key if code.strip() else b"", array("q"), False)
    modules = [
        node for node in tree.body if isinstance(node, ast.ClassDef | Function) and node not in removed
    ]
    return Fingerprint(structure_of_tokens(tokens).key if modules else b"", array("q", sorted(runs)), True)


@lru_cache(1 << 16)
def _number(operation: str) -> int:
    """The same in every process, which `hash` of a text is not."""
    return int.from_bytes(
        hashlib.blake2b(operation.encode("utf-8", "replace"), digest_size=7).digest(), "big"
    )


def _calls(functions: list[list[str]]) -> bool:
    """Whether anything is called or looked up. Operators alone are in every module: `x * y` may be anything."""
    return any("." in operation for function in functions for operation in function)


def _runs(function: list[str]) -> Iterable[int]:
    """Every run of `NGRAM` operations; fewer operations make one run."""
    numbers = [_number(operation) for operation in function]
    for start in range(max(1, len(numbers) - NGRAM + 1)):
        yield hash(tuple(numbers[start : start + NGRAM]))  # of numbers it is the same in every process


def _idle(tree: ast.Module) -> list[ast.stmt]:
    """Constructors that only call their base's, and variables that their function never reads."""
    found: list[ast.stmt] = []
    for node in tree.body:
        methods, name = (node.body, node.name) if isinstance(node, ast.ClassDef) else ([node], "")
        for method in methods:
            if isinstance(method, Function):
                found += [method] if does_nothing(method, name) else _unread(method)
    return found


def _unread(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    parts = nodes(function)
    assigned = [
        (part, {target.id for target in part.targets if isinstance(target, ast.Name)})
        for part in parts
        if isinstance(part, ast.Assign) and all(isinstance(target, ast.Name) for target in part.targets)
    ]
    read = Counter(_reads(parts))
    unread: list[ast.stmt] = []
    while dead := [(part, names) for part, names in assigned if not any(read[name] > 0 for name in names)]:
        for part, _ in dead:
            read.subtract(_read(part))
            unread.append(part)
        assigned = [pair for pair in assigned if pair not in dead]
    return unread


def _read(node: ast.AST) -> list[str]:
    """Every name that is read in there, as often as it is."""
    return _reads(nodes(node))


def _reads(parts: Iterable[ast.AST]) -> list[str]:
    return [part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store)]
