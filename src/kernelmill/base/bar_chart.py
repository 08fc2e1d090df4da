"""Horizontal bar charts, as lines for a terminal and as a small SVG.

Each line has a label, a bar and a number, so that the chart needs no scale. The same bars give the same
bytes. Does not compute the bars: the caller does the counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from kernelmill.base.terminal import plain

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LINE, _BAR, _TOP, _LETTER = 22, 14, 34, 7.2
"""Pixels: height of a line, of its bar and of the title; upper bound of a letter's width in common fonts at
12 px."""
_WIDEST = 360


def terminal_bars(bars: Sequence[tuple[str, int]], width: int = 40) -> list[str]:
    """One line per bar: label, bar, number.

    The longest bar has `width` characters; no bar above zero is invisible.
    """
    if not bars:
        return []
    labels = [_one_line(label) for label, _ in bars]
    numbers = [f"{number:,}" for _, number in bars]
    label_width, number_width = max(map(len, labels)), max(map(len, numbers))
    most = max(number for _, number in bars)
    return [
        f"{label:>{label_width}}  {_drawn(number, most, width):<{width}}  {shown:>{number_width}}"
        for label, (_, number), shown in zip(labels, bars, numbers, strict=True)
    ]


def _drawn(number: int, most: int, width: int) -> str:
    if number <= 0:
        return ""
    # Integers only, so that no machine rounds differently.
    full, rest = divmod(max(1, number * width * 8 // most), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def svg_bars(title: str, bars: Sequence[tuple[str, int]], note: str = "") -> str:
    """The chart as one self-contained SVG element: no scripts, and no external fonts or styles."""
    numbers = [f"{number:,}" for _, number in bars]
    left = 16 + _LETTER * max((len(label) for label, _ in bars), default=0)
    right = 16 + _LETTER * max(map(len, numbers), default=0)
    text_width = 16 + _LETTER * max(len(title) * 7 / 6, len(note))
    width = round(max(left + _WIDEST + right, text_width))
    height = _TOP + _LINE * (len(bars) + bool(note)) + 10
    most = max((number for _, number in bars), default=0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="{_text(title, quoted=True)}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold" fill="#222222">{_text(title)}</text>',
    ]
    for place, ((label, number), shown) in enumerate(zip(bars, numbers, strict=True)):
        top = _TOP + place * _LINE
        base = top + _BAR - 3
        long = max(1, number * _WIDEST // most) if number > 0 else 0
        lines.append(
            f'<text x="{left - 8:.1f}" y="{base}" text-anchor="end" fill="#222222">{_text(label)}</text>'
            f'<rect x="{left:.1f}" y="{top}" width="{long}" height="{_BAR}" fill="#3b6ea8"/>'
            f'<text x="{left + long + 6:.1f}" y="{base}" fill="#555555">{shown}</text>'
        )
    if note:
        base = _TOP + len(bars) * _LINE + _BAR
        lines.append(f'<text x="8" y="{base}" fill="#555555">{_text(note)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _one_line(text: str) -> str:
    return plain(text).replace("\n", " ").replace("\t", " ")


def _text(text: str, quoted: bool = False) -> str:
    """Escape text for XML, which allows neither control codes nor lone surrogates, not even as references."""
    seen = _one_line(text).encode("utf-8", "replace").decode()
    seen = seen.replace("\ufffe", "?").replace("\uffff", "?")
    return escape(seen, {'"': "&quot;"} if quoted else {})
