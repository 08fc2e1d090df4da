"""Detect hints about the implementation in a specification, which must only say what the kernel does.

Uses a list of patterns: advice in other words is not detected. A module may itself have a `block_size`, tile
a tensor or warp an image. For that module the word describes behaviour and is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmill.problems.source import ModuleSource

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


def hints_in(text: str, source: ModuleSource) -> Iterator[str]:
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
