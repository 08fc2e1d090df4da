"""Rewrite the sizes in a candidate's text for a shrunk problem, as the problem's own sizes were rewritten.

A task is shrunk so that the interpreter can run it. A candidate with hard-coded sizes then fails, which
proves nothing. A candidate that is wrong at any size fails too. `resized` helps to tell them apart: with
rewritten sizes the first is right. The caller has to try that. A size that merely occurs in the text proves
nothing.

Rewritten are integers, and arithmetic on literals, that are a size or a multiple of a large one; and floats
that are a size, its square root or the inverse of either. Sizes that are written in any other way are not
found, unless the shape of the result shows them (`has_old_shape`).
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from kernelmill.base.python_text import parse_module
from kernelmill.evaluate.task.shrink import value_of

LARGE = 256
"""From this size on, a multiple of it counts as a product with it.

A smaller one is more likely a block size.
"""
_CLOSE = 1e-6
_SHAPES = re.compile(r"shape \(([\d, ]+)\), expected \(([\d, ]+)\)")


def resized(code: str, sizes: dict[int, int]) -> str | None:
    """The code with new sizes for old ones; None if it contains none of them."""
    new = {place: text for place, text in _places(code, sizes) if text}
    if not new:
        return None
    lines = [line.encode() for line in code.split("\n")]  # the columns of the syntax tree count bytes
    for (line, start, end), text in sorted(new.items(), reverse=True):
        lines[line - 1] = lines[line - 1][:start] + text.encode() + lines[line - 1][end:]
    return "\n".join(line.decode() for line in lines)


def keeps_powers_of_two(code: str, sizes: dict[int, int]) -> bool:
    """Whether every size in the code that is a power of two stays one.

    A block size has to be a power of two, so rewriting could break it.
    """
    used = {
        value
        for node in ast.walk(parse_module(code))
        if isinstance(node, ast.expr) and (value := value_of(node))
    }
    return not any(old in used and _is_power(old) and not _is_power(new) for old, new in sizes.items())


def has_old_shape(error: str, sizes: dict[int, int]) -> bool:
    """Whether a result of the wrong shape has the right shape for the original problem.

    Such a candidate has hard-coded sizes in a form that `resized` does not find: 192 for three times 64.
    """
    found = _SHAPES.search(error)
    if found is None:
        return False
    got, expected = ([int(n) for n in re.findall(r"\d+", text)] for text in found.groups())
    other = [(a, b) for a, b in zip(got, expected, strict=False) if a != b]
    fits = [any(a * new == b * old for old, new in sizes.items()) for a, b in other]
    return len(got) == len(expected) and bool(fits) and all(fits)


def _places(code: str, sizes: dict[int, int]) -> Iterator[tuple[tuple[int, int, int], str]]:
    todo: list[ast.AST] = [parse_module(code)]
    while todo:
        node = todo.pop()
        text = _instead(node, sizes) if isinstance(node, ast.expr) else ""
        if text and isinstance(node, ast.expr) and node.end_col_offset and node.lineno == node.end_lineno:
            yield (node.lineno, node.col_offset, node.end_col_offset), text
        elif not isinstance(node, ast.JoinedStr):  # columns inside an f-string are not those of the source
            todo += ast.iter_child_nodes(node)


def _instead(node: ast.expr, sizes: dict[int, int]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        return _float(node.value, sizes)
    value = value_of(node)
    if value is None or value < 2:
        return ""
    if value in sizes:
        return str(sizes[value])
    rest, changed = value, 1
    for old in sorted(sizes, reverse=True):
        if old >= LARGE and rest % old == 0:
            rest, changed = rest // old, changed * sizes[old]
    return str(rest * changed) if rest != value else ""


def _float(value: float, sizes: dict[int, int]) -> str:
    for old, new in sizes.items():
        for power in (1.0, 0.5, -0.5, -1.0):
            if old > 2 and math.isclose(value, old**power, rel_tol=_CLOSE):
                return repr(float(new**power))
    return ""


def _is_power(value: int) -> bool:
    return value & (value - 1) == 0
