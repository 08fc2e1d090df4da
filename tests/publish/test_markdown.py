from __future__ import annotations

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kernelmill.publish.card.markdown import Markdown, code, environment, listed, one_line, table, text
from kernelmill.settings import config

RENDERER = MarkdownIt("commonmark").enable("table")
HOSTILE = st.text() | st.text("`|\\*_[]<>&!#~$-\n\r\t ab(){}:/'\"\x00\x1b\u202e")


def shown(token: Token) -> str:
    """The letters of a piece of Markdown, which must be nothing but letters and code."""
    assert {child.type for child in token.children or []} <= {"text", "code_inline", "text_special"}
    return "".join(child.content for child in token.children or [])


def cells(markdown: str) -> list[str]:
    tokens = RENDERER.parse(markdown)
    assert tokens[0].type == "table_open"
    assert tokens[-1].type == "table_close"
    return [shown(token) for token in tokens if token.type == "inline"]


@given(HOSTILE, HOSTILE)
def test_any_value_is_one_table_cell_that_shows_its_letters_and_nothing_else(one: str, other: str) -> None:
    made = table(("a", "b", "c"), [(text(one), code(other), 7)])
    assert cells(made) == ["a", "b", "c", one_line(one), one_line(other), "7"]


@given(HOSTILE)
def test_any_value_in_a_sentence_stays_in_it(value: str) -> None:
    tokens = RENDERER.parse(f"Reason: {text(value)}, and {code(value)} end.")
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert shown(tokens[1]) == f"Reason: {one_line(value)}, and {one_line(value)} end."


@pytest.mark.parametrize(
    "address", ["https://evil.example", "www.evil.example", "WWW.evil.example", "a@evil.example"]
)
def test_an_address_does_not_become_a_link_where_bare_addresses_do(address: str) -> None:
    escaped = text(address)
    assert not any(
        mark in escaped.lower().replace("\\:", "").replace("\\.", "").replace("\\@", "")
        for mark in ("://", "www.", "@")
    )


def test_a_value_is_cut_and_says_so() -> None:
    assert one_line("x" * 161) == "x" * 159 + "…"
    assert one_line("x" * 160) == "x" * 160
    assert len(one_line("word " * 10_000_000, 40)) <= 40


def test_secrets_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    config.environment.cache_clear()
    assert "verysecret" not in text("failed with hf_verysecret") + code("hf_verysecret")


def test_a_template_refuses_text_that_was_not_made_safe() -> None:
    template = environment.from_string("{{ value }}")
    assert template.render(value=Markdown("**safe**")) == "**safe**"
    assert template.render(value=12345) == "12,345"
    for bad in ("plain", 1.5, None, True):
        with pytest.raises(TypeError, match="unescaped"):
            template.render(value=bad)
    with pytest.raises((TypeError, jinja2.UndefinedError)):
        template.render()


def test_lists_read_as_sentences() -> None:
    assert [listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
