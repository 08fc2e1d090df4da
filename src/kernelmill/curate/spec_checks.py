"""What a task specification must be before it is used.

Every section is there, the class and all parameters are named, there is no code and no line of the source in it, nothing
in it says how to write the kernel, and the shapes and dtypes it states are the module's own where a trace knows them.
All faults are told at once, in words that the writer can act on. Does not judge whether the prose is right: it cannot
tell a wrong formula from a right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmill.llm.engine import BadAnswer
from kernelmill.problems.facts import TensorFact, Trace
from kernelmill.problems.source import ModuleSource

SECTIONS = (
    "What is computed",
    "Inputs",
    "Outputs",
    "Module interface",
    "Behavioural requirements",
    "Language",
    "Learnable parameters",
)

_HEADING = re.compile(r"^\s{0,3}#{1,6}\s*(?:\d+[.)]\s*)?(?P<title>[^#\n]+?)\s*:?\s*#*\s*$", re.MULTILINE)
_FENCE = re.compile(r"```|~~~")
_CODE_LINE = re.compile(
    r"^\s*(?:>>> ?)?(?:def \w+\s*\(|class \w+\s*[(:]|import \w|from [\w.]+ import\b|@\w+[\w.]*\s*(?:\(|$)|"
    r"(?:for|while|if|with) .+:\s*$|[\w.\[\]]+ = \w+[\w.]*\(.*\)\s*$)"
)
_COPYABLE = re.compile(r"[=(\[+*/@-]")
_SHORTEST_COPY = 10
_HINTS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bblock[\s_-]*sizes?\b", r"\bBLOCK_\w+", r"\btil(?:e|es|ed|ing)\b", r"\bnum_(?:warps|stages)\b", r"\bwarps?\b",
        r"\bauto-?tun\w+", r"\bshared[ -]memory\b", r"\bcoalesc\w+", r"\bprogram[_ ]ids?\b", r"\btl\.\w+", r"@?triton\.\w+",
        r"\bconstexpr\b", r"\b(?:launch|kernel) grid\b", r"\bgrid (?:size|dimensions?)\b", r"\bthread[ -]?blocks?\b",
        r"\bregister (?:pressure|blocking|file)\b", r"\b(?:SRAM|HBM)\b", r"\bvector(?:iz|is)ed (?:load|store|access)\w*",
        r"\bone program (?:instance )?per\b", r"\btl\b", r"\bmulti-?stage pipelin\w+", r"\bsoftware pipelin\w+",
    )
]  # fmt: skip
_SHAPE = re.compile(
    r"\b(?:shape|shaped|shapes|size|sized|dimensions?|tensors?)\b(?P<between>[^()\[\]\n]{0,24})"
    r"(?P<tuple>[(\[]\s*\d+(?:\s*[,×x]\s*\d+)*\s*,?\s*[)\]])",
    re.IGNORECASE,
)
_RANGE_WORDS = re.compile(
    r"\b(?:values?|range|between|interval|from|in|kernel|window|stride)\b", re.IGNORECASE
)
_DTYPE = re.compile(
    r"\b(?:torch\.)?(bfloat16|float16|float32|float64|float8_\w+|u?int8|u?int16|u?int32|u?int64|bool|complex64|complex128)\b"
)


def sections_of(text: str) -> dict[str, str]:
    """The text under each heading that we ask for. Headings of other names stay part of the section they stand in."""
    wanted = {title.lower(): title for title in SECTIONS}
    marks = [
        (found.start(), found.end(), wanted[title])
        for found in _HEADING.finditer(text)
        if (title := found["title"].strip(" *_`").lower()) in wanted
    ]
    ends = [*(start for start, _, _ in marks), len(text)][1:]
    return {title: text[end:stop].strip() for (_, end, title), stop in zip(marks, ends, strict=False)}


def check_spec(text: str, class_name: str, source: ModuleSource, trace: Trace | None) -> None:
    """Raises `BadAnswer` with everything that is wrong."""
    faults = [
        *_structure(text),
        *_names(text, class_name, source),
        *_code(text, source),
        *_hints(text, source),
        *(_shapes(text, trace) if trace is not None else ()),
    ]
    if faults:
        raise BadAnswer("; ".join(faults))


def _structure(text: str) -> Iterator[str]:
    sections = sections_of(text)
    for title in SECTIONS:
        if title not in sections:
            yield f"the section '## {title}' is missing"
        elif not sections[title]:
            yield f"the section '## {title}' is empty"
    if "Language" in sections and "triton" not in sections["Language"].lower():
        yield "the section '## Language' does not say Triton"


def _names(text: str, class_name: str, source: ModuleSource) -> Iterator[str]:
    if not _has_word(text, class_name):
        yield f"the class name {class_name} is missing"
    for place, params in (("__init__", source.init_params), ("forward", source.forward_params)):
        for param in params:
            if not param.kind.startswith("*") and not _has_word(text, param.name):
                yield f"the {place} parameter {param.name} is not named"


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _code(text: str, source: ModuleSource) -> Iterator[str]:
    if _FENCE.search(text):
        yield "it has a code fence"
    for line in text.splitlines():
        if _CODE_LINE.match(line):
            yield f"it has a line of code: {line.strip()[:60]}"
            break
    squeezed = _squeeze(text)
    for line in source.code_lines:
        if len(_squeeze(line)) >= _SHORTEST_COPY and _COPYABLE.search(line) and _squeeze(line) in squeezed:
            yield f"it copies a line of the source: {line.strip()[:60]}"
            break


def _squeeze(text: str) -> str:
    """Without blanks, backticks and quotes, so that re-formatting does not hide a copy."""
    return re.sub(r"[\s`'\"]+", "", text)


def _hints(text: str, source: ModuleSource) -> Iterator[str]:
    code = "\n".join(source.code_lines).lower()
    for pattern in _HINTS:
        for found in pattern.finditer(text):
            # A module may itself have a `block_size` or call `tile`: then it is behaviour, not advice.
            if re.sub(r"[\s-]+", "_", found[0].lower()) not in code:
                yield f"it gives a hint about the implementation: {found[0]}"
                break


def _shapes(text: str, trace: Trace) -> Iterator[str]:
    sections = sections_of(text)
    for title, tensors in (("Inputs", trace.inputs), ("Outputs", trace.outputs)):
        known = [tensor for tensor in tensors if isinstance(tensor, TensorFact)]
        if known:
            yield from _section_shapes(title, sections.get(title, ""), known)


def _section_shapes(title: str, text: str, tensors: Sequence[TensorFact]) -> Iterator[str]:
    for line in text.splitlines():
        named = [tensor for tensor in tensors if _has_word(line, tensor.name)]
        # A line about one tensor must state that one's; any other line, one of the section's.
        meant = named[:1] if len(named) == 1 else list(tensors)
        of = f" of {meant[0].name}" if len(named) == 1 else ""
        for found in _SHAPE.finditer(line):
            if _RANGE_WORDS.search(found["between"]):
                continue
            shape = [int(number) for number in re.findall(r"\d+", found["tuple"])]
            if all(shape != list(tensor.shape) for tensor in meant):
                right = " or ".join(sorted({_tuple(tensor.shape) for tensor in meant}))
                yield f"{title}: the shape{of} is {right}, not {_tuple(shape)}"
        for found in _DTYPE.finditer(line):
            if all(found[1] != tensor.dtype for tensor in meant):
                right = " or ".join(sorted({tensor.dtype for tensor in meant}))
                yield f"{title}: the dtype{of} is {right}, not {found[1]}"


def _tuple(shape: Sequence[int]) -> str:
    return str(tuple(shape))
