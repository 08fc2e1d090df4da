"""The option lists on the page are the program's own."""

from __future__ import annotations

import argparse
import os
import re

import pytest

from kernelmill.problems.sets.command import parser
from tests.conftest import ROOT


def test_the_option_lists_in_the_docs_are_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    made = parser()
    words = next(action for action in made._actions if isinstance(action, argparse._SubParsersAction))
    helps = [made.format_help(), *(word.format_help() for word in words.choices.values())]
    blocks = "\n\n".join(f"```\n{text}```" for text in helps)
    page = ROOT / "docs/problems.md"
    text = page.read_text(encoding="utf-8")
    block = f"<!-- help: problems -->\n{blocks}\n<!-- /help -->"
    new = re.sub(r"<!-- help: problems -->.*?<!-- /help -->", lambda _: block, text, flags=re.DOTALL)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(new, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == new, (
        "run UPDATE_DOCS=1 pytest tests/problems/sets/test_page.py"
    )
