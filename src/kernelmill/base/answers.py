"""Extract the kernel's code from a model's answer.

Producers mark the code in different ways. All of them are read, the most explicit first:

    <answer>…</answer>            perhaps with a code fence inside
    BEGIN_PYTHON … END_PYTHON
    ```python … ```

Thoughts (`<think>…</think>`) are not part of the answer. A block starts at the last opening tag before its
closing tag, so that a tag mentioned in prose does not count. It is an error if no block is found, or if
several complete blocks hold different code. Does not judge the code.
"""

from __future__ import annotations

import ast
import re
from typing import Literal, NamedTuple

from kernelmill.base.python_text import parse_module

Style = Literal["answer", "begin_python", "fence"]

# No re.IGNORECASE: with it `re` would test every character instead of jumping from < to <.
_THINK = re.compile(r"<\s*+(/?)\s*+[tT][hH][iI][nN][kK](?:[iI][nN][gG])?\s*+>")
_FENCE = re.compile(
    # Matches line by line, which is faster than character by character.
    r"^```(?:python|py|triton)?[ \t]*\r?\n((?:(?!```[ \t]*$).*\n)*?)```[ \t]*$",
    re.MULTILINE | re.IGNORECASE,
)
_CLOSING_FENCE = re.compile(r"^```[ \t]*$", re.MULTILINE)
_OPENING_FENCE = re.compile(r"\s*```")
_MARKS: tuple[tuple[Style, str, str], ...] = (
    ("answer", "<answer>", "</answer>"),
    ("begin_python", "BEGIN_PYTHON", "END_PYTHON"),
)


class NoAnswer(Exception):
    """The text has no clear answer. The message says why."""


class Answer(NamedTuple):
    code: str
    style: Style
    thoughts: str
    """Thoughts inside the message; empty where they are in a separate field."""


def read_answer(text: str) -> Answer:
    """Read the answer in one assistant message. Raises `NoAnswer`."""
    thoughts, rest = split_thoughts(text)
    for style, opening, closing in _MARKS:
        blocks = _between(rest, opening, closing)
        if blocks:
            if rest.count(closing) > len(blocks) and rest.rfind(opening) < rest.rfind(closing):
                raise NoAnswer(f"more than one {closing} ends the answer")
            bare = [_without_fence(block) for block in blocks]
            return Answer(_the_one(bare, opening), style, thoughts)
        if opening in rest and style == "answer" and closing not in rest:
            raise NoAnswer(f"{opening} is never closed: the answer was cut")
    fences = [block.strip("\r\n") for block in _fences(rest)]
    if fences:
        return Answer(_the_one(fences, "code fence"), "fence", thoughts)
    raise NoAnswer("no answer block (<answer>, BEGIN_PYTHON or a code fence)")


def code_of(text: str) -> str:
    """Return the candidate's code: the answer in a completion, or the text itself. Raises `NoAnswer`."""
    if "<answer>" in text or "BEGIN_PYTHON" in text or "```" in text or "</think>" in text:
        try:
            return read_answer(text).code
        except NoAnswer:
            if "import " not in text or "<answer>" in text or "BEGIN_PYTHON" in text:
                raise
    return text


def no_code(text: str) -> str:
    """Return why an answer holds no candidate; empty where it may hold one: a program may come without marks.

    Unclosed thoughts never count as a candidate, whatever they contain: an error message would quote them.
    """
    try:
        split_thoughts(text)
    except NoAnswer as error:
        return str(error)
    try:
        read_answer(text)
    except NoAnswer as error:
        return "" if "import " in text else str(error)
    return ""


def split_thoughts(text: str) -> tuple[str, str]:
    """Split a text into thoughts and the rest.

    An unopened closing tag ends thoughts that began with the text. Raises `NoAnswer` where thoughts are not
    closed: what follows may be thoughts or the answer.
    """
    if text.startswith("<think>"):
        # Fast path: nearly always these are the only tags.
        end = text.find("</think>")
        if end >= 0 and not (_THINK.search(text, 7, end) or _THINK.search(text, end + 8)):
            return text[7:end].strip(), text[end + 8 :]
    thoughts: list[str] = []
    rest: list[str] = []
    end = 0
    thinking = False
    for tag in _THINK.finditer(text):
        start, closes = tag.start(), tag[1]
        part = text[end:start]
        if closes and not thinking:
            # Some servers drop the opening tag. A tag inside thoughts also ends up here.
            thoughts += [*rest, part]
            rest = []
        else:
            (thoughts if thinking else rest).append(part)
        thinking = not closes
        end = tag.end()
    if not end:
        return "", text
    if thinking:
        raise NoAnswer("the answer has a <think> that is never closed")
    rest.append(text[end:])
    return "\n\n".join([bare for part in thoughts if (bare := part.strip())]), "".join(rest)


def _between(text: str, opening: str, closing: str) -> list[str]:
    """All complete blocks. Each begins at the last opening mark before its closing mark."""
    blocks = []
    start = 0
    while (end := text.find(closing, start)) >= 0:
        at, found = -1, text.find(opening, start, end)
        while found >= 0:  # usually there is one, and `find` is faster than `rfind`
            at, found = found, text.find(opening, found + 1, end)
        if at >= 0:
            blocks.append(text[at + len(opening) : end])
        start = end + len(closing)
    return blocks


def _fences(text: str) -> list[str]:
    """The contents of all code fences.

    The search stops at the last closing fence: after it, each opening fence would cost a search to the end.
    """
    end = max((found.end() for found in _CLOSING_FENCE.finditer(text)), default=0)
    return _FENCE.findall(text, 0, end)


def _without_fence(block: str) -> str:
    if not _OPENING_FENCE.match(block):
        return block.strip("\r\n")
    fences = _fences(f"{block.strip()}\n")
    return (fences[0] if len(fences) == 1 else block).strip("\r\n")


def _the_one(blocks: list[str], what: str) -> str:
    """The last block, unless another block holds different code. Raises `NoAnswer`."""
    last = blocks[-1]
    if not last or last.isspace():
        raise NoAnswer(f"the last {what} is empty")
    if len(blocks) == 1:
        return last
    others = {block.strip() for block in blocks[:-1]} - {last.strip(), ""}
    if others and (rivals := [block for block in others if _is_code(block)]):
        raise NoAnswer(f"{len(rivals) + 1} different answers ({what})")
    return last


def _is_code(block: str) -> bool:
    """Whether a block is a program and not just a few words."""
    try:
        tree = parse_module(block)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "@triton" in block or "import " in block
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Import | ast.ImportFrom) for node in tree.body
    )
