"""The structure of a task specification, and its two forms: text under headings, and a JSON object.

The published form is always the text. The static writer and a model's JSON answer fill a `Specification`,
whose `text` writes it. Text that a model wrote itself is split by its headings (`sections_of`). It is
normalised first (`normal`), so that full-width and invisible characters hide nothing. Letters of other
scripts that look like Latin ones are not resolved.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import NamedTuple

from msgspec import Struct


class Tensor(Struct, forbid_unknown_fields=True):
    name: str
    shape: list[int]
    dtype: str
    """By its torch name: `float32`."""
    meaning: str
    """Range, meaning, initialisation; may be empty."""

    def text(self) -> str:
        meaning = f", {self.meaning.strip()}" if self.meaning.strip() else ""
        return f"- {self.name}: tensor of shape {tuple(self.shape)}, dtype {self.dtype}{meaning}"


class Tensors(Struct, forbid_unknown_fields=True):
    """A section that lists tensors."""

    tensors: list[Tensor]
    notes: str
    """Lines below the tensors, about plain Python values or the order; may be empty."""

    def text(self) -> str:
        return "\n".join(filter(None, [*(tensor.text() for tensor in self.tensors), self.notes.strip()]))


class Specification(Struct, forbid_unknown_fields=True):
    """A specification by its sections, in their order. A field's name is the heading."""

    what_is_computed: str
    inputs: Tensors
    outputs: Tensors
    module_interface: str
    behavioural_requirements: str
    language: str
    learnable_parameters: Tensors

    def text(self) -> str:
        """The specification as it is published."""
        bodies: dict[str, str] = {}
        for field, title in zip(self.__struct_fields__, SECTIONS, strict=True):
            content = getattr(self, field)
            bodies[title] = content.text() if isinstance(content, Tensors) else content.strip()
        # Outputs stay empty, which the checks reject: a module that returns nothing is not a task.
        for title in ("Inputs", "Learnable parameters"):
            bodies[title] = bodies[title] or "None."
        return "\n\n".join(f"## {title}\n\n{body}" for title, body in bodies.items())


SECTIONS = tuple(field.replace("_", " ").capitalize() for field in Specification.__struct_fields__)
_WANTED = {title.lower(): title for title in SECTIONS} | {
    "behavioral requirements": "Behavioural requirements"
}

_NUMBER = re.compile(r"^\(?\d{1,2}[.)]\s*")
_UNDERLINE = re.compile(r"^\s{0,3}(?:=+|-{2,})\s*$")
_RULE = re.compile(r"^\s*(?:[-*_=]\s*){3,}$")
_BOLD = re.compile(r"^(?:\*\*|__)[^*\n]+(?:\*\*|__):?$")


def normal(text: str) -> str:
    """Normalise a text: resolve compatibility forms and entities, drop invisible characters and escapes."""
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = "".join(char for char in text if char.isascii() or unicodedata.category(char) != "Cf")
    return re.sub(r"\\([_*`#])", r"\1", text).replace("\r\n", "\n")


class Heading(NamedTuple):
    """A heading and its position. `title` is None for a heading that is not in `SECTIONS`."""

    start: int
    end: int
    title: str | None


def headings_of(text: str) -> list[Heading]:
    """All headings: `## Inputs`, `**Inputs**`, underlined, and for required sections also `2. Inputs`."""
    found: list[Heading] = []
    lines = text.splitlines(keepends=True)
    start = 0
    for number, line in enumerate(lines):
        end = start + len(line)
        bare = line.strip()
        if bare and len(bare) < 200 and not _RULE.match(line):
            underlined = number + 1 < len(lines) and _UNDERLINE.match(lines[number + 1]) is not None
            numbered = _NUMBER.match(bare) is not None
            unnumbered = _NUMBER.sub("", bare)
            marked = underlined or bare.startswith("#") or _BOLD.match(unnumbered) is not None
            if marked or numbered:
                inner = _NUMBER.sub("", unnumbered.strip("#*_ :`"))
                title = _WANTED.get(" ".join(inner.strip("#*_ :`").lower().split()))
                if marked or title is not None:
                    stop = end + len(lines[number + 1]) if underlined else end
                    found.append(Heading(start, stop, title))
        start = end
    return found


def sections_of(text: str) -> dict[str, str]:
    """The text of each required section. Other headings stay part of the section they are in.

    A section that occurs twice has both texts.
    """
    marks = [(start, end, title) for start, end, title in headings_of(text) if title is not None]
    ends = [*(start for start, _, _ in marks), len(text)][1:]
    sections: dict[str, str] = {}
    for (_, end, title), stop in zip(marks, ends, strict=False):
        body = text[end:stop].strip()
        sections[title] = f"{sections[title]}\n\n{body}" if title in sections else body
    return sections


def without_rules(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not _RULE.match(line)).strip()
