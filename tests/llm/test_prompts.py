from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.errors import ConfigError
from kernelmill.llm.prompts import Prompt


def prompt(tmp_path: Path, text: str | bytes) -> Prompt:
    path = tmp_path / "mine.md"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Prompt("rate", path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        ("{% if %}", r"mine\.md:1: not a Jinja template"),
        ("{{ nothing }}", r"'nothing' is undefined \(a template can use: module_name, python_code\)"),
        ("{{ 1/0 }}", "ZeroDivisionError"),
        ("{{ 1 // module_name|length * 0 / 0 }}", "ZeroDivisionError"),
        ("{% include 'x' %}", "TypeError: no loader"),
        ("{{ module_name + 1 }}", "TypeError"),
        ("{{ module_name|no_such_filter }}", "not a Jinja template"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "RecursionError"),
        ("{{ module_name.encode('ascii').decode('utf-16') }}", "UnicodeDecodeError"),
        ("{{ 'x' * 10 ** 18 }}", r"MemoryError|OverflowError"),
    ],
)
def test_a_template_that_fails_is_one_line_with_its_name(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        prompt(tmp_path, text).render(module_name="Abc", python_code="code")
    assert "mine.md" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_template_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.md"):
        with pytest.raises(ConfigError, match="cannot be read"):
            Prompt("rate", path)


def test_what_is_rendered_is_the_template_with_the_values_as_they_are(tmp_path: Path) -> None:
    text = prompt(tmp_path, "{{ module_name }}: {{ python_code }}").render(
        module_name="A<&>", python_code="{{ x }}\n"
    )
    assert text == "A<&>: {{ x }}\n"
