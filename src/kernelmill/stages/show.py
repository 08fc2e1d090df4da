"""`kernelmill show`: print rows of any source in the terminal."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from kernelmill.base.rows import Named, Row, RowReader
from kernelmill.base.terminal import plain
from kernelmill.errors import ConfigError
from kernelmill.settings.arguments import Parser, at_least
from kernelmill.settings.config import secret
from kernelmill.store import open_source


def main(arguments: list[str]) -> int:
    """`kernelmill show`: any rows in; their text in the terminal out. Returns the exit code."""
    parser = Parser(prog="kernelmill show", description=__doc__)
    parser.add_argument("source", metavar="SOURCE", help="file, folder or Hub dataset")
    parser.add_argument(
        "-n", "--limit", type=at_least(0), default=3, metavar="N", help="the first N rows only (default: 3)"
    )
    parser.add_argument(
        "--from", dest="start", type=at_least(0), default=0, metavar="ROW", help="first row, counted from 0"
    )
    parser.add_argument(
        "--columns", default="", metavar="A,B", help="only these; a dot goes inside: info.module_name"
    )
    parser.add_argument(
        "--lines",
        type=at_least(0),
        default=12,
        metavar="N",
        help="lines of a long text that are shown (0: all)",
    )
    options = parser.parse_args(arguments)
    source = open_source(options.source, None, secret("HF_TOKEN"))
    columns = [name for name in options.columns.split(",") if name]
    read = RowReader(dict[str, Any])
    console = Console(markup=False, highlight=False)
    shown = 0
    for row in islice(source.rows(), options.start, options.start + options.limit):
        console.print(_panel(row, read(row), columns, options.lines))
        shown += 1
    if not shown:
        console.print("no rows" if options.start == 0 else f"no row {options.start}: the source has fewer")
    return 0


def _panel(row: Row, values: dict[str, Any], columns: list[str], lines: int) -> Panel:
    chosen = {name: _at(values, name) for name in columns} if columns else values
    parts = []
    for name, value in chosen.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        parts.append(
            Text.assemble((name, "bold cyan"), "  " if "\n" not in text else "\n", plain(_cut(text, lines)))
        )
    name = msgspec.convert(values, Named).display_name
    title = f"{name}, {row.where}" if name else row.where  # a long path is cut at its end
    return Panel(Group(*parts), title=Text(plain(title)), title_align="left", border_style="dim")


def _at(values: dict[str, Any], path: str) -> Any:
    value: Any = values
    for name in path.split("."):
        if isinstance(value, str):
            value = _decoded(value)
        if not isinstance(value, dict) or name not in value:
            raise ConfigError(f"no column {path} (there are: {', '.join(values)})")
        value = value[name]
    return value


def _decoded(text: str) -> Any:
    """Decode a column of JSON text, as published datasets have `verdict` and `turns`."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _cut(text: str, lines: int) -> str:
    all_lines = text.splitlines() or [""]
    if lines == 0:
        return text
    kept = [line if len(line) <= 400 else f"{line[:400]}…" for line in all_lines[:lines]]
    left = len(all_lines) - len(kept)
    return "\n".join(kept) + (f"\n… {left} lines more (--lines 0 shows all)" if left else "")
