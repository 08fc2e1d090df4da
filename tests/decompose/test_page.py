"""The page of decompose has the option lists of its commands."""

from __future__ import annotations

import os
import re

import pytest

from kernelmill.decompose import collect, command
from kernelmill.decompose.prove import command as prove_command
from kernelmill.settings.arguments import Parser
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("name", "parser"),
    [("decompose", command.parser()), ("prove", prove_command.parser()), ("collect", collect.parser())],
)
def test_the_option_list_in_the_docs_is_the_programs_own(name: str, parser: Parser) -> None:
    page = ROOT / "docs/decompose.md"
    text = page.read_text(encoding="utf-8")
    block = f"<!-- help: {name} -->\n```\n{parser.format_help()}```\n<!-- /help -->"
    new = re.sub(rf"<!-- help: {name} -->.*?<!-- /help -->", lambda _: block, text, flags=re.DOTALL)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(new, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == new, "run UPDATE_DOCS=1 pytest tests/decompose/test_page.py"
