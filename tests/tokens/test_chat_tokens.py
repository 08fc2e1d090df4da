"""Counts of chats are those of the real library, to the token, whatever the text; templates render as they do for trainers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.errors import ConfigError
from kernelmill.store import open_source
from kernelmill.tokens.chat_rows import ChatReader
from kernelmill.tokens.chat_template import ChatTemplate, TemplateFailed
from kernelmill.tokens.chat_tokens import load_tokenizer
from kernelmill.tokens.text_tokens import PIECES, EmbeddedTokens, FastTokens, LibraryTokens
from kernelmill.tokens.tokenizer_files import TokenizerFiles, find_tokenizer
from kernelmill.tokens.vocabulary import QWEN3_ADDED_TOKENS, QWEN_PATTERN
from tests.conftest import many
from tests.made_once import qwen_folder, small_qwen_folder

LLAMA_PATTERN = next(pattern for pattern in PIECES if pattern != QWEN_PATTERN)
EMBEDDED = TokenizerFiles("qwen-embedded", None)
USER = {"role": "user", "content": "Hi"}


@functools.cache
def whole_spec() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((qwen_folder() / "tokenizer.json").read_text(encoding="utf-8"))
    return found


def library(spec: dict[str, Any]) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


@functools.cache
def with_pattern(pattern: str) -> tokenizers.Tokenizer:
    split, byte_level = whole_spec()["pre_tokenizer"]["pretokenizers"]
    changed = [{**split, "pattern": {"Regex": pattern}}, byte_level]
    return library({**whole_spec(), "pre_tokenizer": {"type": "Sequence", "pretokenizers": changed}})


# Made when a test needs them: it takes seconds, and each worker collects this file.
@functools.cache
def exact_tokens(pattern: str) -> LibraryTokens:
    return LibraryTokens(with_pattern(pattern))


@functools.cache
def fast_tokens(pattern: str) -> FastTokens:
    return FastTokens(exact_tokens(pattern), pattern, list(QWEN3_ADDED_TOKENS))


@functools.cache
def offline_tokens() -> FastTokens:
    return FastTokens(EmbeddedTokens(), QWEN_PATTERN, list(QWEN3_ADDED_TOKENS))


# Words, signs, blanks, line ends and tags in every order, and the letters, digits and blanks beyond ASCII that are hard.
SCRAPS = st.sampled_from([
    "def", "x", "Return", "'s", "'re", "'LL", "'dog", "'", "''", "12", "3456", " ", "  ", "     ", "\t", "\n", "\n\n", "\r\n",
    "\r", "\v", "\f", "(", "):", "->", "==", "_", "\x00", "\x1c", "\x1f", "\x7f", "<think>", "</think>", "<|im_end|>", "<|im_", "→",
    "×", "—", "’s", "✅", "…", "é", "e\u0301", "=\u0338", "\u0301", "σ", "x²", "ſ", "'ſ", "K", "中文", "\u00a0", "\u2003", "\u2028",
    "\x85", "\u200b", "\ufeff", "한", "\u1112\u1161\u11ab", "٣", "Ⅷ", "🙂", "👩‍💻", "ﬁ", "Å", "〈", "\U0001d54f",
])  # fmt: skip
TEXTS = st.one_of(
    st.lists(SCRAPS, max_size=30).map("".join),
    st.text(st.characters(max_codepoint=127)),
    st.lists(SCRAPS | st.text(max_size=5), max_size=12).map("".join),
)


@pytest.mark.parametrize("pattern", PIECES, ids=["qwen", "llama"])
@given(text=TEXTS)
@settings(max_examples=many(1500), deadline=None)
def test_any_text_is_counted_as_the_library_counts_it(pattern: str, text: str) -> None:
    assert fast_tokens(pattern).measure(text)[0] == exact_tokens(pattern).measure(text)[0]


@given(text=st.lists(SCRAPS, max_size=30).map("".join))
@settings(max_examples=many(1500), deadline=None)
def test_the_embedded_vocabulary_counts_as_the_library_does(text: str) -> None:
    assert offline_tokens().measure(text)[0] == exact_tokens(QWEN_PATTERN).measure(text)[0]


@given(
    text=st.one_of(st.text(st.characters(max_codepoint=127)), st.lists(SCRAPS).map("".join)), data=st.data()
)
@settings(max_examples=many(800), deadline=None)
def test_a_place_is_reached_after_as_many_tokens_as_it_takes_to_spell_it(
    text: str, data: st.DataObject
) -> None:
    visible = [
        place
        for place, letter in enumerate(text, 1)
        if letter.isascii() and letter.isprintable() and letter != " "
    ]
    if not visible:
        return
    end = data.draw(st.sampled_from(visible))
    exact = exact_tokens(QWEN_PATTERN).measure(text, end)
    assert fast_tokens(QWEN_PATTERN).measure(text, end) == exact
    assert offline_tokens().measure(text, end) == exact
    ids = with_pattern(QWEN_PATTERN).encode(text, add_special_tokens=False).ids
    if text.isascii():
        spelt = [
            with_pattern(QWEN_PATTERN).decode(ids[:number], skip_special_tokens=False)
            for number in range(len(ids) + 1)
        ]
        assert exact[1] == next(number for number, part in enumerate(spelt) if part.startswith(text[:end]))


@pytest.fixture(scope="module")
def folder() -> Path:
    return qwen_folder()


@pytest.fixture(scope="module")
def small() -> Path:
    return small_qwen_folder()


def test_bundled_rows_have_the_counts_of_the_library_in_all_three_ways(folder: Path) -> None:
    offline, local = load_tokenizer(EMBEDDED), load_tokenizer(find_tokenizer(str(folder)))
    assert isinstance(local.tokens, FastTokens)
    for row in open_source("bundled:samples/evals.jsonl").rows():
        text = offline.render(ChatReader("count")(row).messages)
        assert text == local.render(ChatReader("count")(row).messages)
        exact = len(with_pattern(QWEN_PATTERN).encode(text, add_special_tokens=False))
        assert offline.tokens.measure(text)[0] == local.tokens.measure(text)[0] == exact


def test_the_first_piece_of_a_text_is_counted_after_a_million_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmill.tokens.text_tokens._REMEMBERED", 10)
    fast = FastTokens(EmbeddedTokens(), QWEN_PATTERN, [])
    text = "\n".join(f"name{chr(97 + n % 26) * (n % 7)} é{n}" for n in range(200))
    assert fast.measure(text)[0] == exact_tokens(QWEN_PATTERN).measure(text)[0]


OTHER_KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another normalizer": lambda spec: {"normalizer": {"type": "Lowercase"}},
    "another pattern": lambda spec: {
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        }
    },
    "an added token that eats blanks": lambda spec: {
        "added_tokens": [{**spec["added_tokens"][0], "lstrip": True}]
    },
    "an added token that is normalised": lambda spec: {
        "added_tokens": [{**spec["added_tokens"][0], "normalized": True}]
    },
    "dropout": lambda spec: {"model": {**spec["model"], "dropout": 1.0}},
}


@pytest.mark.heavy
@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_a_tokenizer_of_another_kind_is_counted_by_the_library(
    kind: str, folder: Path, tmp_path: Path
) -> None:
    spec = {**whole_spec(), **OTHER_KINDS[kind](whole_spec())}
    write_like(tmp_path / "other", folder, {"tokenizer.json": json.dumps(spec)})
    loaded = load_tokenizer(find_tokenizer(str(tmp_path / "other")))
    assert not isinstance(loaded.tokens, FastTokens)
    text = "A  <|endoftext|> Test of\n\n  words, 123 ÉÉ"
    assert loaded.tokens.measure(text)[0] == len(library(spec).encode(text, add_special_tokens=False))


def test_a_word_level_tokenizer_is_counted_and_its_places_are_found(tmp_path: Path, small: Path) -> None:
    vocabulary = {"<unk>": 0, "Hello": 1, "there": 2, "user": 3, ":": 4}
    spec = {
        **whole_spec(), "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }  # fmt: skip
    write_like(tmp_path / "words", small, {"tokenizer.json": json.dumps(spec)})
    loaded = load_tokenizer(find_tokenizer(str(tmp_path / "words")))
    assert loaded.tokens.measure("user: Hello there", 11) == (4, 3)


def test_a_length_that_was_set_for_serving_cuts_nothing(tmp_path: Path, folder: Path) -> None:
    truncation = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    spec = {**whole_spec(), "truncation": truncation, "padding": {**padding, "pad_to_multiple_of": None}}
    write_like(tmp_path / "cut", folder, {"tokenizer.json": json.dumps(spec)})
    loaded = load_tokenizer(find_tokenizer(str(tmp_path / "cut")))
    text = "one two three é four" * 9
    assert loaded.tokens.measure(text) == exact_tokens(QWEN_PATTERN).measure(text)


def test_a_token_that_stands_in_the_config_only_is_one_token(tmp_path: Path, folder: Path) -> None:
    config = {"added_tokens_decoder": {"151669": {"content": "<mine>", "special": True, "normalized": False}}}
    write_like(tmp_path / "more", folder, {"tokenizer_config.json": json.dumps(config)})
    loaded = load_tokenizer(find_tokenizer(str(tmp_path / "more")))
    assert loaded.tokens.measure("a<mine>b") == (3, None)


def write_like(new: Path, old: Path, files: dict[str, str]) -> Path:
    """A copy of a tokenizer folder with some files changed; an empty text leaves the file out."""
    new.mkdir()
    for path in old.iterdir():
        text = files.get(path.name, path.read_text(encoding="utf-8"))
        if text:
            (new / path.name).write_text(text, encoding="utf-8")
    return new


def test_templates_of_the_config_are_found_by_name(tmp_path: Path, small: Path) -> None:
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools {{ tools | length }}"},
    ]
    files = {"chat_template.jinja": "", "tokenizer_config.json": json.dumps({"chat_template": named})}
    loaded = load_tokenizer(find_tokenizer(str(write_like(tmp_path / "named", small, files))))
    assert loaded.render([USER]) == "plain"
    assert loaded.render([USER], [{"name": "f"}]) == "tools 1"


def test_what_is_no_tokenizer_is_told_in_one_line(tmp_path: Path, small: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.json").write_text("{}")
    for name, problem in {
        str(tmp_path / "empty"): "holds no tokenizer.json",
        str(tmp_path / "file.json"): "is a file: name the folder",
        "no-such-folder": "no such folder, nor a name on the Hub.*qwen-embedded",
        "~no-such-user/x": "not a path",
    }.items():
        with pytest.raises(ConfigError, match=problem):
            find_tokenizer(name)
    for number, (files, problem) in enumerate([
        ({"tokenizer.json": "{}"}, "tokenizer.json cannot be read"),
        ({"tokenizer_config.json": "[1]"}, "not a JSON object"),
        ({"chat_template.jinja": ""}, "has no chat template"),
        ({"chat_template.jinja": "{% if %}"}, "the chat template is not valid, line 1"),
    ]):  # fmt: skip
        with pytest.raises(ConfigError, match=problem):
            load_tokenizer(find_tokenizer(str(write_like(tmp_path / f"bad{number}", small, files))))


def rendered(text: str, **more: Any) -> str:
    return ChatTemplate(text, {"bos_token": "<s>", "eos_token": "</s>"}, "test").render([USER], **more)


def test_templates_have_what_transformers_gives_them() -> None:
    assert rendered("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ nothing }}") == "<s>Hi</s>"
    assert rendered("{% for m in messages %}\n  {% if m %}\n  x\n  {% endif %}\n{% endfor %}") == "  x\n"
    assert rendered("{{ {'a': '<é>'} | tojson }}") == '{"a": "<é>"}'
    assert rendered("{{ {'a': 1} | tojson(indent=1) }}") == '{\n "a": 1\n}'
    assert rendered("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}") == "1"
    assert rendered("{% generation %}{% set x = 1 %}mine{% endgeneration %}") == "mine"
    assert rendered("{{ strftime_now('%Y') | length }}") == "4"
    assert rendered("{{ enable_thinking }}", variables={"enable_thinking": False}) == "False"
    assert rendered("{{ add_generation_prompt }}", generation_prompt=True) == "True"
    assert rendered("{{ tools is none }}{{ documents is none }}") == "TrueTrue"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ raise_exception('no system message') }}", "no system message"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ messages.append(1) }}", "append"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_fails_says_why_and_cannot_break_out(text: str, problem: str) -> None:
    with pytest.raises(TemplateFailed, match=problem):
        rendered(text)


def qwen(*messages: dict[str, Any], **more: Any) -> str:
    return load_tokenizer(EMBEDDED).render(messages, **more)


def test_the_last_turn_shows_its_thoughts_and_earlier_ones_do_not() -> None:
    first = {"role": "assistant", "content": "<think>\nold\n</think>\n\nFirst."}
    last = {"role": "assistant", "content": "\nLast.", "reasoning_content": "\nnew\n"}
    assert qwen({"role": "system", "content": "S"}, USER, first, USER, last) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nFirst.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nnew\n</think>\n\nLast.<|im_end|>\n"
    )


def test_thoughts_inside_the_content_are_the_same_as_in_their_field() -> None:
    inside = {"role": "assistant", "content": "<think>\nwhy\n</think>\n\nSo."}
    apart = {"role": "assistant", "content": "So.", "reasoning_content": "why"}
    assert qwen(USER, inside) == qwen(USER, apart)
    assert qwen(USER, {"role": "assistant", "content": "So."}).endswith(
        "assistant\n<think>\n\n</think>\n\nSo.<|im_end|>\n"
    )


def test_a_prompt_ends_with_an_open_thought() -> None:
    assert (
        qwen(USER, generation_prompt=True)
        == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )


def test_tools_their_calls_and_answers_are_shown() -> None:
    function = {"name": "run", "arguments": {"code": "é"}}
    asked = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": function}, {"name": "b", "arguments": "{}"}],
    }
    answer = {"role": "tool", "content": "1"}
    text = qwen(
        USER, asked, answer, answer, {"role": "assistant", "content": "Done."}, tools=[{"name": "run"}]
    )
    assert text.startswith("<|im_start|>system\n# Tools\n\n")
    assert '<tools>\n{"name": "run"}\n</tools>' in text
    assert text.endswith(
        '<|im_start|>assistant\n<tool_call>\n{"name": "run", "arguments": {"code": "é"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n1\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\nDone.<|im_end|>\n"
    )
