"""The attacks: candidates that were written to get past this evaluator, by family, each with the task it answers.

A file of `corpus/attacks` is one, with a docstring as its label (`corpus/README.md`). `tests.evaluate.corpus` reads the
candidates whose patterns are those of the catalogue.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache

from tests.evaluate.corpus import ROOT, entry_point, tasks, without_header

FIELDS = ("task", "family", "aims", "label", "what", "policy", "danger")
AIMS = ("replay", "table")


@dataclass(frozen=True)
class Attack:
    name: str
    task: str
    family: str
    aims: str
    """`replay` if it was written against the recording of programs, `table` if against what was there before."""
    labels: frozenset[str]
    """The verdicts that are right."""
    what: str
    policy: str
    """Why it is right to call it correct, if it is: what it does is graded. Empty for all others."""
    code: str
    reference: str
    entry_point: str


@cache
def attacks() -> tuple[Attack, ...]:
    return tuple(
        _read(path.stem, path.read_text("utf-8")) for path in sorted((ROOT / "attacks").glob("*.py"))
    )


def _read(name: str, text: str) -> Attack:
    fields: dict[str, str] = {}
    for line in (ast.get_docstring(ast.parse(text)) or "").splitlines():
        key, colon, value = line.partition(":")
        if not colon or key not in FIELDS or key in fields:
            raise ValueError(f"{name}: not a header line: {line!r}")
        fields[key] = value.strip()
    reference = tasks()[fields["task"]]
    return Attack(
        name,
        fields["task"],
        fields["family"],
        fields["aims"],
        frozenset(fields["label"].split("|")),
        fields["what"],
        fields.get("policy", ""),
        without_header(text),
        reference,
        entry_point(reference),
    )
