"""The kernel inside a model's answer.

Producers mark it in different ways, and a reader takes all of them, the most explicit first:

    <answer>…</answer>            perhaps with a code fence inside
    BEGIN_PYTHON … END_PYTHON
    ```python … ```

Thoughts (`<think>…</think>`) are not part of the answer, and neither is a tag that is only mentioned in prose: an opening tag
counts from the last one before its closing tag. Where several complete blocks hold different code there is no clear answer,
and that is an error, as is none at all. Does not judge the code.
"""

from __future__ import annotations

import ast
import re
from typing import Literal, NamedTuple

from kernelmill.base.python_text import parse_module

Style = Literal["answer", "begin_python", "fence"]

# Not re.IGNORECASE, which would have it look at every letter instead of jumping from < to <.
_THINK = re.compile(r"<\s*+(/?)\s*+[tT][hH][iI][nN][kK](?:[iI][nN][gG])?\s*+>")
_FENCE = re.compile(
    # Line by line, not letter by letter.
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
    """There is no clear answer; the text says why."""


class Answer(NamedTuple):
    code: str
    style: Style
    thoughts: str
    """What was thought inside the message; empty where thoughts stand in a field of their own."""


def read_answer(text: str) -> Answer:
    """The answer of one assistant message. Raises `NoAnswer`."""
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
    """The candidate's code: the text itself, or the answer in a completion. Raises `NoAnswer`."""
    if "<answer>" in text or "BEGIN_PYTHON" in text or "```" in text or "</think>" in text:
        try:
            return read_answer(text).code
        except NoAnswer:
            if "import " not in text or "<answer>" in text or "BEGIN_PYTHON" in text:
                raise
    return text


def no_code(text: str) -> str:
    """Why there is no candidate in an answer; empty where there may be one: a program may stand there without any mark.

    Thoughts without an end are none, whatever they hold: an error would quote them.
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
    """What is thought, and the rest. A closing tag that nothing opened ends thoughts that began with the text.

    Raises `NoAnswer` where thoughts begin and do not end: what follows may be thoughts or the answer.
    """
    if text.startswith("<think>"):
        # Nearly always these are the only tags.
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
            # Some servers swallow the opening tag; a tag inside thoughts ends up here too.
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
    """Complete blocks; each begins at the last opening mark before its closing one."""
    blocks = []
    start = 0
    while (end := text.find(closing, start)) >= 0:
        at, found = -1, text.find(opening, start, end)
        while found >= 0:  # mostly there is one, and Python looks faster forwards than backwards
            at, found = found, text.find(opening, found + 1, end)
        if at >= 0:
            blocks.append(text[at + len(opening) : end])
        start = end + len(closing)
    return blocks


def _fences(text: str) -> list[str]:
    """What stands in code fences. Behind the last one that closes none is looked for: each would be, to the end."""
    end = max((found.end() for found in _CLOSING_FENCE.finditer(text)), default=0)
    return _FENCE.findall(text, 0, end)


def _without_fence(block: str) -> str:
    if not _OPENING_FENCE.match(block):
        return block.strip("\r\n")
    fences = _fences(f"{block.strip()}\n")
    return (fences[0] if len(fences) == 1 else block).strip("\r\n")


def _the_one(blocks: list[str], what: str) -> str:
    """The last block, if no other block that is code says something else."""
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
    """Whether this is a program rather than a few words between the marks."""
    try:
        tree = parse_module(block)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "@triton" in block or "import " in block
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Import | ast.ImportFrom) for node in tree.body
    )
