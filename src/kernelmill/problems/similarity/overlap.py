"""Detection of modules that are rewritten problems of another set.

There are two comparisons. Both ignore the module's own names, formatting, comments, docstrings, imports,
`get_inputs` and anything else in the file that no class needs, constructors that do nothing, and unread
variables:

- *same code*: the structure (`structure`) is equal;
- *n-grams*: the module contains most runs of three operations (`operations`) of the problem, in any order of
  its functions and whatever else it does. Numbers do not count here.

Runs of two or three operations occur in every other module. A problem with few runs must therefore be present
as a whole, with nothing beside it. Both comparisons see code, not meaning: `x.relu()`, `torch.relu(x)` and
`x.clamp(min=0)` all differ.
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
from kernelmill.problems.similarity.normal_form import normal_form
from kernelmill.problems.similarity.operations import Function, nodes, operations
from kernelmill.problems.similarity.statements import does_nothing, flat
from kernelmill.problems.similarity.structure import structure_of, structure_of_tokens

NGRAM = 3
FLOOR = 3
"""A problem with fewer runs must be the whole module."""

How = Literal["same code", "n-grams"]


class Fingerprint(NamedTuple):
    """What is compared of a module."""

    key: bytes
    """Equal for modules that are the same code; empty if there is no class and no function."""
    runs: array[int]
    """The distinct runs of operations, as numbers."""
    parsed: bool
    """Whether the text is Python. If not, only the same text matches."""


class Match(NamedTuple):
    problem: int
    how: How
    share: float
    """The share of the problem that is in the module."""


class FingerprintIndex:
    """The problems that modules are compared with. Call `add` for each, then `finish`."""

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
        """Build the index.

        Each problem is listed under enough of its rarest runs that every match shares one of them.

        Runs that all problems share are then never looked up, and the cost of a module does not grow with the
        set.
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
        """Return the problems that this module is or contains, the best match first; ties in set order."""
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
    """Compute the fingerprints of several texts, in a worker process."""
    with no_collector():
        return [fingerprint(code) for code in codes]


def fingerprint(code: str) -> Fingerprint:
    """Compute the fingerprint without running anything.

    Text that is not Python is marked and compared as text.
    """
    code = code.removeprefix("\ufeff")  # a byte order mark, which Python's parser rejects
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
    """Map an operation to a number that is the same in every process, unlike the `hash` of a string."""
    return int.from_bytes(
        hashlib.blake2b(operation.encode("utf-8", "replace"), digest_size=7).digest(), "big"
    )


def _calls(functions: list[list[str]]) -> bool:
    """Whether anything is called or looked up.

    Operators alone do not identify a module: `x * y` is everywhere.
    """
    return any("." in operation for function in functions for operation in function)


def _runs(function: list[str]) -> Iterable[int]:
    """Yield every run of `NGRAM` operations; fewer operations make one run."""
    numbers = [_number(operation) for operation in function]
    for start in range(max(1, len(numbers) - NGRAM + 1)):
        yield hash(tuple(numbers[start : start + NGRAM]))  # for integers, the same in every process


def _idle(tree: ast.Module) -> list[ast.stmt]:
    """Return constructors that only call their base's, and assignments that their function never reads."""
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
            read.subtract(_reads(nodes(part)))
            unread.append(part)
        assigned = [pair for pair in assigned if pair not in dead]
    return unread


def _reads(parts: Iterable[ast.AST]) -> list[str]:
    """Return every name that is read, once for each read."""
    return [part.id for part in parts if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store)]
