"""Draw the hierarchy of a decomposed model, as `tree.svg` and in a terminal.

Each part is one line; its children are below and to the right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from rich.text import Text
from rich.tree import Tree as RichTree

from kernelmill.base.terminal import plain
from kernelmill.decompose.levels import LEVELS, Level
from kernelmill.decompose.write.tree_file import Row, TreeFile, rows, shapes, typed

_FILL: dict[Level, str] = {"model": "#5b3f8c", "layer": "#1f5fa8", "fusion": "#b4610a", "kernel": "#2b7a3d"}
_STYLE: dict[Level, str] = {"model": "magenta", "layer": "blue", "fusion": "yellow", "kernel": "green"}
_LINE, _INDENT, _LETTER, _TOP, _MARGIN, _BADGE = 24, 26, 7.25, 92, 24, 54
_LONGEST = 64
_SHOWN_IN_TERMINAL = 100
"""Maximum lines; a larger tree is shown without its kernels."""


def svg(tree: Mapping[str, Any]) -> str:
    """The tree as an SVG image. Raises `NotATree`."""
    found = typed(tree)
    lines = list(rows(found))
    texts = [(_name(row), _facts(row)) for row in lines]
    # Sizes are in a column of their own, to the right of the longest name.
    column = (
        max(
            _left(row) + _BADGE + 10 + len(name) * _LETTER
            for row, (name, _) in zip(lines, texts, strict=True)
        )
        + 28
    )
    width = max(760.0, column + max(len(facts) for _, facts in texts) * _LETTER + _MARGIN)
    height = _TOP + len(lines) * _LINE + _MARGIN
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" viewBox="0 0 {width:.0f} {height}"'
        ' font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12">',
        f"<title>{_safe(found.metadata.model_name)}</title>",
        f'<rect width="{width:.0f}" height="{height}" fill="#ffffff"/>',
        *_heading(found),
        *_branches(lines),
    ]
    for at, (row, (name, facts)) in enumerate(zip(lines, texts, strict=True)):
        drawn += _line(at, row, name, facts, column, width)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def rich_tree(tree: Mapping[str, Any]) -> RichTree:
    """The tree for `rich` to print. Raises `NotATree`."""
    found = typed(tree)
    lines = list(rows(found))
    whole = len(lines) <= _SHOWN_IN_TERMINAL
    made: list[RichTree] = []
    for row in lines:
        if not whole and row.node.level == "kernel" and row.depth:
            continue
        label = Text(plain(_name(row)), style=_STYLE[row.node.level] + (" dim" if _folded(row) else ""))
        label.append(f"  {plain(_facts(row))}", style="dim")
        if not whole and (kernels := sum(found.nodes[c].level == "kernel" for c in row.node.children)):
            label.append(f"  {kernels} kernel{'s' if kernels > 1 else ''}", style="dim green")
        branch = RichTree(label) if not row.depth else made[row.depth - 1].add(label)
        made[row.depth :] = [branch]
    return made[0]


def _name(row: Row) -> str:
    times = f" x{row.times}" if row.times > 1 else ""
    return f"{_cut(row.node.id)}{times}{' (as above)' if _folded(row) else ''}"


def _folded(row: Row) -> bool:
    """Whether its children are shown only at its first occurrence, further up."""
    return row.again and bool(row.node.children)


def _facts(row: Row) -> str:
    """Input and output sizes, and the number of occurrences in the whole model.

    Sizes are those of the first occurrence. One kernel may have others elsewhere, which the tree does not
    record.
    """
    node = row.node
    if row.again:
        return f"{node.instance_count} in all"
    into, out = shapes(node.input_shapes, node.input_dtypes), shapes(node.output_shapes, node.output_dtypes)
    times = f", {node.instance_count} in all" if node.instance_count > 1 else ""
    return f"{_cut(into) or 'nothing'} -> {_cut(out)}{times}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _safe(text: str) -> str:
    """Escape for XML, which allows no control codes or lone surrogates."""
    return escape(plain(text).encode("utf-8", "backslashreplace").decode())


def _left(row: Row) -> float:
    return _MARGIN + row.depth * _INDENT


def _middle(at: int) -> float:
    return _TOP + at * _LINE + _LINE / 2


def _heading(tree: TreeFile) -> Iterator[str]:
    kind = tree.metadata.classification
    yield f'<text x="{_MARGIN}" y="34" font-size="18" font-weight="bold" fill="#1a1a1a">{_safe(tree.metadata.model_name)}</text>'
    if kind is not None:
        yield f'<text x="{_MARGIN}" y="54" fill="#555555">{_safe(f"{kind.level}: {kind.reason}")}</text>'
    x = float(_MARGIN)
    for level in reversed(LEVELS):
        mine = tree.of_level(level)
        if not mine:
            continue
        uses = sum(node.instance_count for node in mine)
        text = f"{len(mine)} {level}{'s' if len(mine) > 1 else ''}"
        text += f", {uses} in all" if uses > len(mine) else ""
        yield f'<rect x="{x:.0f}" y="66" width="12" height="12" rx="2" fill="{_FILL[level]}"/>'
        yield f'<text x="{x + 18:.0f}" y="76" fill="#1a1a1a">{text}</text>'
        x += 18 + len(text) * _LETTER + 24


def _branches(lines: list[Row]) -> Iterator[str]:
    """Lines from each part down and right to its children."""
    above: list[int] = []
    strokes = []
    for at, row in enumerate(lines):
        above[row.depth :] = [at]
        if row.depth:
            x = _left(lines[above[row.depth - 1]]) + 11
            # Only the last child draws the vertical line from the parent, so that lines do not overlap.
            strokes.append(f"M{x} {_middle(at)}H{_left(row)}")
            if row.last:
                strokes.append(f"M{x} {_middle(above[row.depth - 1]) + 8}V{_middle(at)}")
    if strokes:
        yield f'<path d="{"".join(strokes)}" stroke="#b8b8b8" fill="none"/>'


def _line(at: int, row: Row, name: str, facts: str, column: float, width: float) -> Iterator[str]:
    node, x, y = row.node, _left(row), _middle(at)
    faint = ' opacity="0.55"' if _folded(row) else ""
    below = f" made of {len(node.children)} parts" if node.children else ""
    told = (
        f"{node.id}: {', '.join(node.operations)}{below}{f'; {node.source_path}' if node.source_path else ''}"
    )
    if at % 2:
        yield f'<rect y="{y - _LINE / 2:.0f}" width="{width:.0f}" height="{_LINE}" fill="#000000" fill-opacity="0.025"/>'
    yield f"<g{faint}><title>{_safe(told)}</title>"
    yield f'<rect x="{x:.0f}" y="{y - 8:.0f}" width="{_BADGE}" height="16" rx="3" fill="{_FILL[node.level]}"/>'
    yield f'<text x="{x + _BADGE / 2:.0f}" y="{y + 4:.0f}" font-size="11" fill="#ffffff" text-anchor="middle">{node.level}</text>'
    yield f'<text x="{x + _BADGE + 10:.0f}" y="{y + 4:.0f}" fill="#1a1a1a">{_safe(name)}</text>'
    yield f'<text x="{column:.0f}" y="{y + 4:.0f}" fill="#555555">{_safe(facts)}</text></g>'
