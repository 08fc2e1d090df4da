"""`kernelmill show`: print rows of any source in the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from kernelmill.base.rows import Named, Row, RowReader
from kernelmill.base.terminal import plain
from kernelmill.errors import ConfigError
from kernelmill.settings.config import secret
from kernelmill.settings.options import ToolSettings, argument, option
from kernelmill.store import open_source


@dataclass(frozen=True, kw_only=True)
class ShowSettings(ToolSettings):
    """`kernelmill show`: print rows of any source in the terminal."""

    abbreviations = True
    source: str = argument("file, folder or Hub dataset", "SOURCE")
    limit: int = option(3, "the first N rows only", flag="-n", least=0)
    from_: int = option(0, "first row, counted from 0", least=0, metavar="ROW")
    columns: str = option("", "only these; a dot goes inside: info.module_name", metavar="A,B")
    lines: int = option(12, "lines of a long text that are shown (0: all)", least=0)


def main(options: ShowSettings) -> int:
    """`kernelmill show`: any rows in; their text in the terminal out. Returns the exit code."""
    source = open_source(options.source, None, secret("HF_TOKEN"))
    columns = [name for name in options.columns.split(",") if name]
    read = RowReader(dict[str, Any])
    console = Console(markup=False, highlight=False)
    shown = 0
    for row in islice(source.rows(), options.from_, options.from_ + options.limit):
        console.print(_panel(row, read(row), columns, options.lines))
        shown += 1
    if not shown:
        console.print("no rows" if options.from_ == 0 else f"no row {options.from_}: the source has fewer")
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
