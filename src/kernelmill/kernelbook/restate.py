"""KernelBook's `triton_code` without the names of torch 2.5 that other versions of torch do not have.

The code is what Inductor of torch 2.5 wrote, and three private names of that time keep it from running: `grid`, which
torch has removed, and a device guard and an allocator that need CUDA even where Triton's interpreter takes the place of
the GPU. Each is replaced by a plain definition of the same meaning, and nothing else is touched: kernels, launches, the
class and all other imports are judged as they stand. Lines keep their numbers; the definitions stand at the end.

Only whole lines in the form that KernelBook has are replaced. A row that spells them otherwise is judged as it stands.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_GRID = """\
def {name}(*numels):
    def programs(meta):
        blocks = zip(reversed(numels), ("XBLOCK", "YBLOCK", "ZBLOCK"))
        counts = [-(-numel // meta.get(block, 1)) for numel, block in blocks]
        if len(counts) == 2 and counts[1] > 65535:
            parts = -(-counts[1] // 65535)
            counts = [counts[0], -(-counts[1] // parts), parts]
        return tuple(counts)
    return programs
"""
_EMPTY = """\
def {name}(size, stride, dtype):
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")
"""
_LINES = {
    "grid": (
        re.compile(
            r"^from torch\._inductor\.runtime\.triton_heuristics import (?P<name>grid)[ \t\r]*$", re.MULTILINE
        ),
        _GRID,
    ),
    "empty_strided_cuda": (
        re.compile(
            r"^(?P<name>[A-Za-z_]\w*) = torch\._C\._dynamo\.guards\._empty_strided_cuda[ \t\r]*$",
            re.MULTILINE,
        ),
        _EMPTY,
    ),
}
"""What a name is called in the column `restated`, the line that binds it, and what it means."""
_GUARD = re.compile(r"\btorch\.cuda\._DeviceGuard\b")


class Restated(NamedTuple):
    code: str
    names: list[str]
    """What was replaced: of `grid`, `empty_strided_cuda`, `_DeviceGuard`."""


def restate(code: str) -> Restated:
    """The code to judge, and what of it is not the row's own."""
    names, definitions = [], []
    for name, (line, meaning) in _LINES.items():
        if found := line.search(code):
            code = line.sub(f"# {found['name']}: see the end", code)
            names.append(name)
            definitions.append(meaning.format(name=found["name"]))
    code, guards = _GUARD.subn("torch.cuda.device", code)
    if guards:
        names.append("_DeviceGuard")
    if definitions:
        code = "\n\n".join([code.rstrip("\n") + "\n", *definitions])
    return Restated(code, names)
