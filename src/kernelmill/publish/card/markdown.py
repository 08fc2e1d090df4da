"""Markdown from values that nobody has checked: names, reasons and settings out of rows and manifests.

`Markdown` is text that may stand in a document as it is. Everything else becomes it through `text` or `code`, which hide secrets
and leave nothing that a renderer would act on: no table cell ends early, no tag, link or heading begins. A template that is
rendered with `environment` refuses every string that did not take this way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2

from kernelmill.settings.config import redact

MOST_LETTERS = 160

_ACTIVE = re.compile(r"[\\`*_\[\]{}#|~$!^:@]|(?<=www)\.", re.IGNORECASE)
"""What means something inside a line, in CommonMark, in GitHub's tables and links (`www.`, `https:`, `@name`) or to the Hub (`$`)."""
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_UNSEEN = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
"""Unicode's classes of what is not seen, or turns the order of what is."""


class Markdown(str):
    """Text that is safe to stand in a document as it is."""

    __slots__ = ()


def text(value: object, most: int = MOST_LETTERS) -> Markdown:
    """A value as words of a sentence or a table cell. Never at the beginning of a line, where a dash makes a list."""
    return Markdown(_ACTIVE.sub(r"\\\g<0>", one_line(value, most)).translate(_ENTITIES))


def code(value: object, most: int = MOST_LETTERS) -> Markdown:
    """A value in code type; one that holds a pipe or a backtick, which have no place there, as words."""
    line = one_line(value, most)
    return Markdown(f"`{line}`") if line and not re.search(r"[`|]", line) else text(value, most)


def one_line(value: object, most: int = MOST_LETTERS) -> str:
    """A value without secrets, line ends and what is not seen, cut to so many letters."""
    seen = "".join(_letter(letter) for letter in redact(str(value))[: 4 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _letter(letter: str) -> str:
    if letter.isspace():
        return " "
    return "�" if unicodedata.category(letter) in _UNSEEN else letter


def table(head: Sequence[str], rows: Iterable[Sequence[Markdown | int]]) -> Markdown:
    """A table; numbers and shares stand on the right."""
    lines = [list(row) for row in rows]
    numbers = [bool(lines) and all(_is_number(row[at]) for row in lines) for at in range(len(head))]
    shown = [
        list(head),
        ["---:" if number else "---" for number in numbers],
        *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in lines),
    ]
    return Markdown("\n".join(f"| {' | '.join(cells)} |" for cells in shown))


def _is_number(cell: Markdown | int) -> bool:
    return isinstance(cell, int) or cell.endswith("%")


def listed(parts: Iterable[str], last: str = "and") -> Markdown:
    """`a, b and c`, of parts that are Markdown already."""
    *others, end = list(parts) or [""]
    return Markdown(f"{', '.join(others)} {last} {end}" if others else end)


def _only_markdown(value: Any) -> str:
    if isinstance(value, Markdown):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    raise TypeError(f"{value!r} would stand in the document unescaped: it is no Markdown")


environment = jinja2.Environment(
    loader=jinja2.PackageLoader("kernelmill", "publish"),
    undefined=jinja2.StrictUndefined,
    finalize=_only_markdown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
