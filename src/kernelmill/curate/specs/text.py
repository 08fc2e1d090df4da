"""Parse a task specification: its sections, and the shapes and dtypes that it states.

Text is normalised first (`normal`), so that full-width and invisible characters hide nothing. Letters of
other scripts that look like Latin ones are not resolved. Parsing is by patterns: `(0, 1)` is a range after
"values in" and a shape otherwise.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

SECTIONS = (
    "What is computed",
    "Inputs",
    "Outputs",
    "Module interface",
    "Behavioural requirements",
    "Language",
    "Learnable parameters",
)
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


class ShapeSaid(NamedTuple):
    """A shape in the text: None for a symbolic dimension, `...` for any number of dimensions.

    `remark`: the words around it say that it is not a tensor's shape but a range of values, axes or a window.
    """

    dims: tuple[int | str | None, ...]
    remark: bool
    part: bool
    """Whether the words around it say that it is part of a shape: `8 × 8 images`."""


_DIM = r"(?:(?:[A-Za-z]\w*\s*=\s*)?\d[\d_]*|[A-Za-z]\w*|\*|\.\.\.|-1)"
_TUPLE = re.compile(rf"(?P<open>[(\[])\s*(?P<dims>{_DIM}(?:\s*,\s*{_DIM})*\s*,?|)\s*(?P<close>[)\]])")
_PRODUCT = re.compile(
    r"(?<![\w.^])(?!0x)\d[\d_]*(?:(?:\s*[x×✕✖*∗·⋅]\s*|\s+by\s+)\d[\d_]*){1,16}(?!\w|\.\d)", re.IGNORECASE
)
_BARE = re.compile(r"\b(?:shape|size)s?\s*(?:is|of|=|:)?\s*(\d+(?:\s*,\s*\d+)+)(?!\w|\.\d)", re.IGNORECASE)
_SHAPE_WORDS = r"shapes?|shaped|sizes?|sized|dimensions|tensors?|matrix|matrices"
_RANGE_WORDS = (
    r"values?|valued|range\w*|ranging|between|interval|drawn|sampled|uniform\w*|normal\w*|random\w*|lies?|lying|indices|"
    r"index|integers?|labels?|probabilit\w+|class(?:es)?|clamp\w*|clip\w*|limit\w*|bound\w*|elements?|entries|entry|"
    r"(?:in|within|from|∈)(?=\s*$)"
)
_ANCHOR = re.compile(rf"\b(?:(?P<shape>{_SHAPE_WORDS})|(?:{_RANGE_WORDS}))\b|∈(?=\s*$)", re.IGNORECASE)
_SHAPE_WORD_BEFORE = re.compile(rf"\b(?:{_SHAPE_WORDS}|dimensions?)\b[^,;()]{{0,24}}$", re.IGNORECASE)
_ASIDE_BEFORE = re.compile(
    r"\b(?:(?:kernel|window|stride|padding|dilation|patch|filter|pool|broadcast|permut)\w*|axis|axes|dims?|over|along|"
    r"across|one of|among)\b[^,;]{0,16}$|\b(?:dimensions? order|order)\s*$",
    re.IGNORECASE,
)
_ASIDE_AFTER = re.compile(
    r"^[\s-]*(?:kernels?|windows?|filters?|strides?|patch(?:es)?|pool\w*|conv\w*|neighbou?rhoods?|regions?)\b",
    re.IGNORECASE,
)
_PART = re.compile(
    r"\b(?:each|per|spatial|images?|matrix|matrices|maps?|planes?|slices?|grids?|frames?|vectors?|heads?)\b",
    re.IGNORECASE,
)
_CALLS = re.compile(
    r"^(?:cl[ai]\w*|\w*range|rand\w*|uniform|u|n|normal|min|max|minimum|maximum|relu6|hardtanh|linspace|pow|mod|"
    r"softmax|sum|mean|log|exp|f|g)$",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|no|never|instead of|rather than|without|nor|neither|unlike|isn't|aren't)"
    r"(?:\s+(?:an?|any|the|in|as|of|to|cast|converted|shape|dtype))*[\s(\[`]*(?:torch\.)?$",
    re.IGNORECASE,
)


def shapes_in(line: str) -> Iterator[ShapeSaid]:
    """Yield every tuple or product of integers in a line, except negated ones ("not (8, 4)")."""
    line = line.replace("\\times", "×").replace("\\left", "").replace("\\right", "").replace("\\,", " ")
    line = re.sub(r"`|\$|\*\*", "", line)
    for found in _TUPLE.finditer(line):
        dims = [dim.strip() for dim in found["dims"].split(",") if dim.strip()]
        numbers = sum((dim[-1].isdigit() and not dim[0].isalpha()) or "=" in dim for dim in dims)
        before = line[max(0, found.start() - 60) : found.start()]
        call = re.search(r"\w*$", before)
        if dims and not numbers:
            continue
        if call and call[0] and (len(dims) < 2 or numbers < len(dims) or _CALLS.match(call[0])):
            continue
        # `(8)` may be anything in parentheses; `(8,)` is a tuple.
        if (
            len(dims) == 1
            and not found["dims"].rstrip().endswith(",")
            and not _SHAPE_WORD_BEFORE.search(before)
        ):
            continue
        halfopen = found["open"] + found["close"] in ("[)", "(]") and len(dims) == 2
        yield from _said(dims, line, found.start(), found.end(), halfopen)
    for found in _PRODUCT.finditer(line):
        yield from _said(re.findall(r"\d[\d_]*", found[0]), line, found.start(), found.end(), False)
    for found in _BARE.finditer(line):
        yield from _said(re.findall(r"\d+", found[1]), line, found.start(1), found.end(), False)


def _said(dims: list[str], line: str, start: int, end: int, halfopen: bool) -> Iterator[ShapeSaid]:
    before = re.split(r"[;|]|\.\s", line[max(0, start - 60) : start])[-1]
    after = line[end : end + 24]
    if _NEGATED.search(before):
        return
    read = tuple(_dim(dim) for dim in dims)
    whole = [dim for dim in read if isinstance(dim, int)]
    rising = len(read) == len(whole) == 2 and whole[0] < whole[1]
    anchors = list(_ANCHOR.finditer(before))
    ranged = rising and bool(anchors) and anchors[-1]["shape"] is None
    aside = _ASIDE_BEFORE.search(before) is not None or _ASIDE_AFTER.search(after) is not None
    part = _PART.search(before[-30:]) is not None or _PART.search(after) is not None
    yield ShapeSaid(read, halfopen or ranged or aside, part)


def _dim(text: str) -> int | str | None:
    if text in ("*", "..."):
        return "..."
    number = text.rpartition("=")[2].strip().replace("_", "")
    return int(number[:20]) if number.isdecimal() else None


SCALAR = re.compile(r"\bscalars?\b|\b(?:0|zero)[- ]?d(?:im\w*)?\b|\brank[- ](?:0|zero)\b", re.IGNORECASE)

_DTYPES = {
    "float16": ("fp16", "f16", "half", "halftensor"), "bfloat16": ("bf16", "bfloat16tensor"),
    "float32": ("fp32", "f32", "float", "single", "floattensor"), "float64": ("fp64", "f64", "double", "doubletensor"),
    "int8": ("i8", "chartensor"), "uint8": ("u8", "byte", "bytetensor"), "int16": ("i16", "short", "shorttensor"),
    "int32": ("i32", "int", "inttensor"), "int64": ("i64", "long", "longtensor"), "bool": ("boolean", "booltensor"),
    "uint16": (), "uint32": (), "uint64": (), "complex32": (), "complex64": ("cfloat",), "complex128": ("cdouble",),
}  # fmt: skip
_BY_ALIAS = {alias: dtype for dtype, aliases in _DTYPES.items() for alias in (dtype, *aliases)}
# Words that mean a dtype only in the position of a dtype: "a long row" and "half of it" are prose.
_PROSE = ("half", "float", "single", "double", "byte", "short", "int", "long")
_PLAIN = "|".join(alias for alias in _BY_ALIAS if alias not in _PROSE)
_DTYPE = re.compile(
    rf"(?<![\w.])(?:torch\.)?(?P<plain>{_PLAIN}|float8_\w+)(?!\w)"
    rf"|\btorch\.(?P<torch>{'|'.join(_PROSE)})(?![\w(])"
    rf"|\b(?:d|data[ -]?)?types?(?:\s+is|\s+of|\s*[:=])?\s*(?P<typed>{'|'.join(_PROSE)})(?![\w-])"
    rf"|(?<![\w-])(?P<before>{'|'.join(_PROSE)})(?=[- ]precision\b|\s+(?:tensors?|d?type)\b)"
    rf"|(?:(?<=[,|(;:)\]])|(?<=[,|(;:)\]]\s))(?P<alone>{'|'.join(_PROSE)})(?=\s*(?:$|[,|);.]))"
    r"|\b(?P<bits>8|16|32|64)-?\s?bit\s+(?P<kind>float|signed int|int|brain float)",
    re.IGNORECASE,
)


def dtypes_in(line: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the dtypes in a line, as written and as meant, except negated ones ("not float64")."""
    line = re.sub(r"`|\*\*", "", line)
    for found in _DTYPE.finditer(line):
        if _NEGATED.search(line[max(0, found.start() - 40) : found.start()]):
            continue
        if found["bits"]:
            kind = found["kind"].lower().split()[-1]
            meant = {f"{kind}{found['bits']}"}
            if found["bits"] == "16" and kind == "float":
                meant.add("bfloat16")
        else:
            word = next(
                group for name, group in found.groupdict().items() if group and name != "bits"
            ).lower()
            meant = {_BY_ALIAS.get(word, word)}
            if word == "int" and not found["torch"]:
                meant.add("int64")  # in prose it just means an integer
        yield found[0].strip(), frozenset(meant)
