"""One place for the codes of flags: what a check gives is in the registry, and what is in the registry is given by a check."""

from __future__ import annotations

import re
from pathlib import Path

import kernelmill
from kernelmill.evaluate.flags import CODES, PATTERNS, SOFT, pattern_of, with_tables, words_of
from tests.conftest import ROOT

PACKAGE = Path(kernelmill.__file__).parent
CODE = re.compile(r'"([A-E]\d{1,2}\.[a-z_0-9]+)"')


def given() -> set[str]:
    """The codes that stand in the source of checks."""
    files = [file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "evaluate/flags.py"]
    return {code for file in files for code in CODE.findall(file.read_text(encoding="utf-8"))}


def test_every_code_that_a_check_gives_is_registered_and_every_registered_one_is_given() -> None:
    assert sorted(given() - set(CODES)) == []
    assert sorted(set(CODES) - given()) == []


def test_every_code_belongs_to_a_pattern_and_has_words() -> None:
    assert {pattern_of(code) for code in (*CODES, *SOFT)} <= set(PATTERNS)
    assert all(words_of(code, severity) for code in CODES for severity in ("hard", "soft", "info"))
    assert words_of("Z9.unheard_of", "hard") is None


def test_the_tables_of_the_docs_are_made_from_the_registry() -> None:
    page = (ROOT / "docs/hacks.md").read_text(encoding="utf-8")
    assert with_tables(page) == page, "python -m kernelmill.evaluate.flags docs/hacks.md"
