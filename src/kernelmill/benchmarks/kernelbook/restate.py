"""KernelBook's `triton_code` without names of torch 2.5 that later versions removed.

Inductor of torch 2.5 wrote the code. Later versions no longer have its functions that compute a launch grid:
`grid`, and `split_scan_grid` for kernels that scan. Each is replaced by a plain definition with the same
meaning. Nothing else changes: kernels, launches, the class and all other imports are judged as they are. Line
numbers stay the same; the definitions are appended at the end.

Only imports on one line are replaced. A row that spells them differently is judged as it is.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_MEANING = {
    "grid": """\
def {name}(*numels):
    def programs(meta):
        blocks = zip(reversed(numels), ("XBLOCK", "YBLOCK", "ZBLOCK"))
        counts = [-(-numel // meta.get(block, 1)) for numel, block in blocks]
        if len(counts) == 2 and counts[1] > 65535:
            parts = -(-counts[1] // 65535)
            counts = [counts[0], -(-counts[1] // parts), parts]
        return tuple(counts)
    return programs
""",
    "split_scan_grid": """\
def {name}(xnumel, rnumel):
    def programs(meta):
        assert meta.get("XBLOCK", 1) == 1
        return (-(-rnumel // meta.get("RBLOCK", 1)), xnumel, 1)
    return programs
""",
}
_MODULE = "from torch._inductor.runtime.triton_heuristics import "
_LINE = re.compile(rf"^{re.escape(_MODULE)}(?P<names>[\w ,]+?)(?P<rest>[ \t\r]*)$", re.MULTILINE)
_NAME = re.compile(r"(\w+)(?: +as +(\w+))?")


class Restated(NamedTuple):
    code: str
    names: list[str]
    """The replaced names: `grid`, `split_scan_grid`."""


def restate(code: str) -> Restated:
    """Return the code to judge, and the names in it that were replaced."""
    found: dict[str, str] = {}
    """The original name, by the alias that the row uses."""

    def kept(line: re.Match[str]) -> str:
        parts = [(part.strip(), _NAME.fullmatch(part.strip())) for part in line["names"].split(",")]
        ours = {text: name for text, name in parts if name and name[1] in _MEANING}
        if not ours:
            return line[0]
        found.update({name[2] or name[1]: name[1] for name in ours.values()})
        others = ", ".join(text for text, _ in parts if text and text not in ours)
        note = f"# {', '.join(name[2] or name[1] for name in ours.values())}: see the end"
        return (f"{_MODULE}{others}  {note}" if others else note) + line["rest"]

    code = _LINE.sub(kept, code)
    if found:
        definitions = [_MEANING[what].format(name=name) for name, what in found.items()]
        code = "\n\n".join([code.rstrip("\n") + "\n", *definitions])
    return Restated(code, list(dict.fromkeys(found.values())))
