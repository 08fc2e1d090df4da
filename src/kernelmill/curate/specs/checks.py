"""Check a task specification before it is used.

- Every section is present exactly once, with nothing around the sections.
- The class and all parameters are named.
- There is no code, and no copied line of the source.
- Nothing says how to write the kernel.
- Inputs and Outputs state all shapes and dtypes of the module and no others, if a trace is available.

All faults are reported at once, in words that the writer can act on. Does not judge whether the prose is
right: cannot tell a wrong formula from a right one, and reads shapes in Inputs and Outputs only.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from kernelmill.base.python_text import parse_module
from kernelmill.curate.specs.shapes import shape_faults
from kernelmill.curate.specs.specification import SECTIONS, headings_of, normal, sections_of, without_rules
from kernelmill.curate.thoughts import strip_thoughts
from kernelmill.llm.engine import BadAnswer
from kernelmill.problems.facts import Trace
from kernelmill.problems.source import ModuleSource

_CHATTER = re.compile(
    r"^\W*(?:sure|certainly|of course|absolutely|okay|great)\b\s*[,!.:]"
    r"|^\W*here(?:'s| is| are)\b[^.\n]{0,40}\b(?:specification|spec|task)\b",
    re.IGNORECASE | re.MULTILINE,
)
_FAREWELL = re.compile(
    r"\b(?:let me know|feel free|hope (?:this|that|it)|happy to|glad to|would you like|shall i\b|any (?:\w+ )?questions"
    r"|if you(?:'d| would)? (?:need|want|like|have|prefer)|i can (?:also|provide|write|add|help|adjust|extend)\b|this (?:concludes|completes)"
    r"|end of (?:the )?specification)",
    re.IGNORECASE,
)

_FENCE = re.compile(r"```|~~~")
_MARKUP = re.compile(r"</?\s*(?:pre|code|samp|script)\b[^>\n]{0,80}>", re.IGNORECASE)
_CODE_LINE = re.compile(
    r"^[\s>`]*(?:def \w+\s*\(|class \w+\s*(?:\(.*\)\s*:?|:)\s*$|import [\w.]+(?:\s+as \w+)?(?:\s*,\s*[\w.]+)*[`;]?\s*$"
    r"|import (?:torch|triton|math|numpy)\b"
    r"|from [\w.]+ import\b|@\w+[\w.]*\s*(?:\(|$))"
)
_HEADER = re.compile(r"^[\s>`]*((?:for|while|if|elif|with) .{1,200}:)[\s`]*$")
_INLINE = re.compile(
    r"(?P<returned>(?:^|`|;)[ \t]*(?:[-*] |>>> ?)?return [^\n]{0,200}?\w\()"
    r"|(?P<called>\b[A-Za-z_]\w*\.(?!(?:weight|bias)\()[a-z_]\w*\()"
    r"|(?P<chained>[)\]]\.[a-z_]\w*\()"
    r"|(?P<kept>\bself\.\w+ *[-+*/]?=(?!=))",
    re.MULTILINE,
)
_COPYABLE = re.compile(r"[=(\[+*/@-]")
_SHORTEST_COPY = 10
_SHORTEST_EXPRESSION = 14

_BLOCKS = r"block_?sizes?|pixel_?(?:un)?shuffle|space_to_depth|depth_to_space|num_blocks"
_REPEATS = r"\btile\b|\.tile\(|repeat|expand"
_CONVOLUTION = r"conv|kernel"

_HINTS: list[tuple[re.Pattern[str], re.Pattern[str] | None]] = [
    (re.compile(pattern, re.IGNORECASE), re.compile(unless, re.IGNORECASE) if unless else None)
    for pattern, unless in (
        (r"\bblock[\s_-]*(?:sizes?|dim(?:ension)?s?|shapes?|widths?|heights?|pointers?|ptrs?)\b", _BLOCKS),
        (r"\bBLOCK_\w+", None),
        (r"\bblocks?\s+of\s+(?:[a-z]+\s+){0,2}\d+\b(?!\s+(?:layers?|conv\w*|units?))", rf"{_BLOCKS}|unfold|window|\bblocks\b"),
        (r"\b(?:chunks?|strips?)\s+of\s+(?:[a-z]+\s+){0,2}\d+\b", "chunk|split|unfold|window"),
        (r"\btil(?:e|es|ed|ing)\b", _REPEATS),
        (r"\bnum_(?:warps|stages|ctas)\b", None),
        # Allow the verb: "warps the image".
        (r"\bwarps?\b(?!\s+(?:the|an?|each|every|its|this|that|it|both|all|images?|features?)\b)", "warp|grid_sample"),
        (r"\bauto-?tun\w+", None),
        (r"\bshared[ -]memory\b|\bglobal[ -]memory\b|\bbank conflicts?\b", None),
        (r"\bmemory (?:traffic|bandwidth|access\w*|latency|hierarchy|loads?|stores?|transactions?)\b", None),
        (r"\bcoalesc\w+", None),
        (r"\bprogram[_ ]ids?\b|\bprograms? instances?\b|\b(?:each|every|per|one) programs?\b", None),
        (r"\btl\.\w+|@?triton\.\w+|\btl\b|\bconstexpr\b", None),
        (r"\b(?:launch|kernel) grid\b|\bgrid[- ]stride\b", None),
        (r"\bgrid (?:size|dimensions?)\b", "grid"),
        (r"\bthread[ -]?blocks?\b", None),
        (r"\b(?:each|every|per|one) (?:\w+ )?thread\b|\bthreads per\b|\bCTAs?\b", "thread"),
        (r"\blaunch(?:es|ing|ed)?\s+(?:config\w*|param\w*|(?:one|an?|two|three|\d+|multiple|several|separate|single|enough)\b)", None),
        (r"\bregister (?:pressure|blocking|file|tile)\b|\b(?:in(?:to)?|from|on|via|across|using) (?:the |GPU |CUDA )?registers\b", None),
        (r"\b(?:SRAM|HBM)\b|\btensor[- ]cores?\b|\b(?:wg)?mma\b|\bTMA\b|\bmultiprocessors?\b|\boccupancy\b", "occupancy"),
        (r"\bL[123]\b[ -](?:\w+[ -])?cach\w+|\bcache (?:hits?|lines?|reuse|locality|modifier\w*)\b", None),
        (r"\bswizzl\w+|\b(?:split|stream)[- _]?k\b|\bbank swizzle\b", None),
        (r"\bpersistent[- ](?:kernel|thread|program|block|CTA|matmul|loop|reduction)\w*", None),
        (r"\bmask(?:ed|ing|s)?\s+(?:(?:\w|-)+\s+){0,3}?(?:loads?|stores?)\b", None),
        (r"\bout[- ]of[- ]bounds?\s+(?:loads?|stores?|access\w*|threads?|lanes?)\b", None),
        (r"\bvector(?:iz|is)ed (?:load|store|access|memory)\w*", None),
        (r"\bfus(?:e|es|ed|ing|ion)\b[^.\n]{0,80}\bkernels?\b", None),
        (r"\b(?:in(?:to)?|as|with|by|using) (?:a single|one|a fused) (?:\w+ )?kernel\b|\b(?:one|single|separate) kernels? (?:per|for each)\b",
         _CONVOLUTION),
        (r"\b(?:loop )?unroll(?:ed|ing)?\b", "unroll"),
        (r"\bdouble[- ]buffer\w*|\bprefetch\w*|\bmulti-?stage pipelin\w+|\bsoftware pipelin\w+", None),
        (r"\batomic(?:s|[_ -](?:add|max|min|op)\w*)\b", None),
        (r"\bonline[- ]softmax\b|\bflash[- ]?attention\b", "flash_?attention"),
        (r"\bnext power of (?:two|2)\b", None),
    )
]  # fmt: skip
"""Hints about the implementation, and the words of a module for which each one describes behaviour: a module
may itself have a `block_size`, tile a tensor or warp an image. Advice in other words is not detected."""


def clean_spec(text: str) -> str:
    """Return the specification in a model's answer, without thoughts and surrounding blank lines.

    Raises `BadAnswer` where thoughts are not closed. Does not remove chatter: `check_spec` rejects it.
    """
    return strip_thoughts(text).strip()


def check_spec(text: str, class_name: str, source: ModuleSource, trace: Trace | None) -> None:
    """Check a specification. Raises `BadAnswer` with all faults."""
    text = normal(text)
    sections = sections_of(text)
    faults = [
        *_structure(text, sections),
        *_chatter(text),
        *_names(text, class_name, source),
        *_code(text, source),
        *(f"it gives a hint about the implementation: {hint}" for hint in _hints(text, source)),
        *(shape_faults(text, sections, source, trace) if trace is not None else ()),
    ]
    if faults:
        raise BadAnswer("; ".join(faults))


def _structure(text: str, sections: dict[str, str]) -> Iterator[str]:
    times = Counter(heading.title for heading in headings_of(text))
    for title in SECTIONS:
        if title not in sections:
            yield f"the section '## {title}' is missing"
        elif times[title] > 1:
            yield f"the section '## {title}' is there {times[title]} times"
        elif not without_rules(sections[title]):
            yield f"the section '## {title}' is empty"
    if "Language" in sections and "triton" not in sections["Language"].lower():
        yield "the section '## Language' does not say Triton"


def _chatter(text: str) -> Iterator[str]:
    """Faults for text before the first section (a title is allowed), and for remarks to the reader."""
    start = 0
    for heading in headings_of(text):
        if before := without_rules(text[start : heading.start]):
            yield f"there is text before the first section: {_short(before)}"
            break
        start = heading.end
        if heading.title is not None:
            break
    if found := _CHATTER.search(text):
        yield f"it speaks to the reader: {_short(text[found.start() :])}"
    last = without_rules(text).rsplit("\n\n", 1)[-1].rsplit("\n", 1)[-1]
    if _FAREWELL.search(last):
        yield f"it speaks to the reader: {_short(last)}"


def _short(text: str) -> str:
    return text.strip().partition("\n")[0][:60]


def _names(text: str, class_name: str, source: ModuleSource) -> Iterator[str]:
    words = set(re.findall(r"\w+", text))
    if class_name not in words:
        yield f"the class name {class_name} is missing"
    for place, params in (("__init__", source.init_params), ("forward", source.forward_params)):
        for param in params:
            if not param.kind.startswith("*") and param.name.strip("_") and param.name not in words:
                yield f"the {place} parameter {param.name} is not named"


def _code(text: str, source: ModuleSource) -> Iterator[str]:
    for param in (*source.init_params, *source.forward_params):
        # Part of the interface: a default such as `nn.ReLU()` may be stated.
        for said in (param.default, param.annotation):
            if said is not None and "(" in said:
                text = text.replace(said, "…")
    if _FENCE.search(text):
        yield "it has a code fence"
    if found := _MARKUP.search(text):
        yield f"it has a code fence: {found[0]}"
    for line in text.splitlines():
        if _CODE_LINE.match(line) or _is_header(line):
            yield f"it has a line of code: {line.strip()[:60]}"
            break
    if found := _INLINE.search(text):
        said = text[found.start() : found.end() + 40]
        yield f"it has code in it: {_short(said)} (say it in words or as a formula)"
    squeezed = _squeeze(text)
    for line, copy in _copies(source.code_lines):
        if copy in squeezed:
            yield f"it copies a line of the source: {line.strip()[:60]}"
            break


def _is_header(line: str) -> bool:
    """Whether a line is the header of a Python block.

    "if the mask is false, as follows:" and "with bias:" are not.
    """
    found = _HEADER.match(line)
    if found is None:
        return False
    try:
        node = parse_module(f"{found[1].removeprefix('el')} pass").body[0]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if isinstance(node, ast.If | ast.While):
        return not isinstance(node.test, ast.Name)
    return not isinstance(node, ast.With) or not isinstance(node.items[0].context_expr, ast.Name)


@lru_cache(maxsize=512)
def _copies(code_lines: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Lines and expressions that must not occur in the text: the source line, and the squeezed copy."""
    found: dict[str, str] = {}
    for line in code_lines:
        whole = _squeeze(line)
        if len(whole) < _SHORTEST_COPY or not _COPYABLE.search(line):
            continue
        try:
            nodes = parse_module(line.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            nodes = []  # a block header, or part of a string
        value = getattr(nodes[0], "value", None) if nodes else None
        if isinstance(value, ast.AST):
            # `batch_size = 16` is a fact, not code.
            if isinstance(nodes[0], ast.Assign) and not any(map(_computes, ast.walk(value))):
                continue
            said = _squeeze(ast.unparse(value))
            if len(said) >= _SHORTEST_EXPRESSION and _is_program(value):
                found.setdefault(said, line)
        found.setdefault(whole, line)
    return tuple((line, copy) for copy, line in found.items())


def _computes(node: ast.AST) -> bool:
    return isinstance(node, ast.Call | ast.BinOp | ast.Attribute | ast.Subscript | ast.Name)


def _is_program(value: ast.AST) -> bool:
    """Whether an expression is code, with calls, attributes or indices, and not a plain formula."""
    inner = list(ast.walk(value))
    if any(isinstance(node, ast.Call) and node.args for node in inner):
        return True
    mixed = any(isinstance(node, ast.Attribute | ast.Subscript) for node in inner)
    return mixed and any(isinstance(node, ast.BinOp | ast.Call) for node in inner)


def _squeeze(text: str) -> str:
    """Remove whitespace, backticks and quotes, so that reformatting does not hide a copy."""
    return re.sub(r"[\s`'\"]+", "", text)


def _hints(text: str, source: ModuleSource) -> Iterator[str]:
    """Yield one example of each kind of hint in the text, except words that the module itself uses."""
    code = "\n".join(source.code_lines)
    lower = code.lower()
    for pattern, unless in _HINTS:
        found = pattern.search(text)
        if found is None or (unless is not None and unless.search(code)):
            continue
        for found in pattern.finditer(text):
            if re.sub(r"[\s-]+", "_", found[0].lower()) not in lower:
                yield found[0]
                break
