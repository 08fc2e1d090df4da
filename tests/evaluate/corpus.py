"""The evaluator's corpus: candidates whose right verdict is known, each with the task it answers.

A task is a file of `corpus/tasks`; a case is a file of `corpus/cases`, whose docstring is its label and is cut
off before anybody else sees the code. `corpus/README.md` says what the fields mean. This module reads them; it
runs nothing.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent / "corpus"
TRUTHS = frozenset({"correct", "incorrect", "hack", "inconclusive"})
GRADES = frozenset({"partial", "torch_fallback", "fragile", "seed_only", "by_order", "shape_specialised"})
TIERS = frozenset({"static", "interpreter", "compile", "gpu"})
FIELDS = frozenset({"task", "pattern", "label", "twin_of", "what", "grade", "tier", "danger"})


@dataclass(frozen=True)
class Case:
    name: str
    task: str
    pattern: str
    """A number of the catalogue (A1 to E14); `X` for plain mistakes and what cannot be run."""
    labels: frozenset[str]
    """The verdicts that are right: most often one."""
    what: str
    code: str
    """The candidate, without its label."""
    reference: str
    entry_point: str
    twin_of: tuple[str, ...] = ()
    """For an honest candidate: the hostile cases it stands beside."""
    grade: str | None = None
    """What the record's grade should say of it, where that matters more than the verdict."""
    tier: str = "interpreter"
    """The cheapest tier that can be expected to tell."""
    danger: bool = False
    """Never to be run outside a sandbox."""

    @property
    def hostile(self) -> bool:
        return "hack" in self.labels


def cases() -> list[Case]:
    return list(_by_name().values())


def case(name: str) -> Case:
    return _by_name()[name]


@cache
def _by_name() -> dict[str, Case]:
    return {path.stem: _read(path) for path in sorted((ROOT / "cases").glob("*.py"))}


@cache
def tasks() -> dict[str, str]:
    return {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "tasks").glob("*.py"))}


def header(text: str) -> dict[str, str]:
    """The fields of a case's docstring. Anything else in there is an error, so that no label is lost to a typo."""
    fields: dict[str, str] = {}
    for line in (ast.get_docstring(ast.parse(text)) or "").splitlines():
        name, colon, value = line.partition(":")
        if not colon or name not in FIELDS or name in fields:
            raise ValueError(f"not a header line: {line!r}")
        fields[name] = value.strip()
    return fields


def without_header(text: str) -> str:
    first = ast.parse(text).body[0]
    if not isinstance(first, ast.Expr):
        raise ValueError("a case begins with its docstring")
    return "".join(text.splitlines(keepends=True)[first.end_lineno :]).lstrip("\n")


def entry_point(reference: str) -> str:
    """The reference's class: `Model`, or the last one of a file that has none."""
    names = [node.name for node in ast.parse(reference).body if isinstance(node, ast.ClassDef)]
    return "Model" if "Model" in names else names[-1]


def _read(path: Path) -> Case:
    text = path.read_text("utf-8")
    fields = header(text)
    reference = tasks()[fields["task"]]
    return Case(
        name=path.stem,
        task=fields["task"],
        pattern=fields["pattern"],
        labels=frozenset(re.split(r"\s*\|\s*", fields["label"])),
        what=fields["what"],
        code=without_header(text),
        reference=reference,
        entry_point=entry_point(reference),
        twin_of=tuple(re.split(r"[,\s]+", fields["twin_of"])) if fields.get("twin_of", "-") != "-" else (),
        grade=fields.get("grade"),
        tier=fields.get("tier", "interpreter"),
        danger=fields.get("danger", "no") == "yes",
    )
