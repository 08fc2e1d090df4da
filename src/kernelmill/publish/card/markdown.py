"""Escape untrusted values for Markdown: names, reasons and settings from rows and manifests.

`Markdown` is text that is safe to insert as it is. `text` and `code` convert everything else: they redact
secrets and escape all active characters, so that no value can end a table cell or start a tag, link or
heading. A template rendered with `environment` rejects strings that are not `Markdown`.
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
"""Characters that are active within a line: in CommonMark, in GitHub's tables and autolinks (`www.`,
`https:`, `@name`) or on the Hub (`$`)."""
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_UNSEEN = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are invisible or change the order of the text."""


class Markdown(str):
    """Text that is safe to insert into a document as it is."""

    __slots__ = ()


def text(value: object, most: int = MOST_LETTERS) -> Markdown:
    """Escape a value for a sentence or a table cell.

    Not for the start of a line, where a dash begins a list.
    """
    return Markdown(_ACTIVE.sub(r"\\\g<0>", one_line(value, most)).translate(_ENTITIES))


def code(value: object, most: int = MOST_LETTERS) -> Markdown:
    """Format a value as inline code, or as plain text if it contains a pipe or a backtick."""
    line = one_line(value, most)
    return Markdown(f"`{line}`") if line and not re.search(r"[`|]", line) else text(value, most)


def one_line(value: object, most: int = MOST_LETTERS) -> str:
    """A value on one line, without secrets and invisible characters, truncated to `most` characters."""
    seen = "".join(_letter(letter) for letter in redact(str(value))[: 4 * most])
    line = " ".join(seen.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _letter(letter: str) -> str:
    if letter.isspace():
        return " "
    return "�" if unicodedata.category(letter) in _UNSEEN else letter


def table(head: Sequence[str], rows: Iterable[Sequence[Markdown | int]]) -> Markdown:
    """A table. Columns of numbers and percentages are right-aligned."""
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
    """Join parts that are already Markdown: `a, b and c`."""
    *others, end = list(parts) or [""]
    return Markdown(f"{', '.join(others)} {last} {end}" if others else end)


def _only_markdown(value: Any) -> str:
    if isinstance(value, Markdown):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    raise TypeError(f"{value!r} would stand in the document unescaped: it is no Markdown")


environment = jinja2.Environment(
    loader=jinja2.PackageLoader("kernelmill.publish.card", ""),
    undefined=jinja2.StrictUndefined,
    finalize=_only_markdown,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,
)
