"""Declare the settings of a tool: a frozen dataclass with a field for each flag and positional argument.

    @dataclass(frozen=True, kw_only=True)
    class AdmitSettings(ToolSettings):
        '''Flag problems that a candidate could pass without computing them.'''

        sources: tuple[Path, ...] = argument("a problem's .py file, or a folder of them", "SOURCE")
        output: Path | None = option(None, "write one JSON row a problem to this file", flag="-o")
        json: bool = option(False, "print JSON: the rows instead of the table")

The docstring is the description in the help. `commands` makes the parser: the annotation says how a value is
read, whether there may be several (`tuple`), and what it may be (`Literal`). A field with a plain default
has no flag. Stages declare theirs with `setting` of `base`, which needs pydantic; a tool such as `evaluate`
also runs where only the standard library, numpy, torch and triton are installed.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field
from typing import Any, ClassVar, Literal, Self

from kernelmill.settings.arguments import Parser

Device = Literal["cpu", "cuda", "auto"]


@dataclass(frozen=True)
class ToolSettings:
    """Base of the settings of tools."""

    epilog: ClassVar[str | None] = None
    """The last paragraph of the help."""
    usage: ClassVar[str | None] = None
    """The first line of the help, where argparse's own would mislead."""
    abbreviations: ClassVar[bool] = False
    """Whether the beginning of a flag stands for it. Kept where it always worked; not for new commands."""

    @classmethod
    def load(cls, parser: Parser, arguments: list[str]) -> Self:
        """Parse the arguments. A command that parses them in another way, or passes some on, overrides this."""
        return cls.of(parser.parse_args(arguments))

    @classmethod
    def of(cls, given: Namespace, **more: Any) -> Self:
        """The settings with argparse's values. Its lists become tuples, because settings are immutable."""
        values = {
            name: tuple(value) if isinstance(value, list) else value for name, value in vars(given).items()
        }
        return cls(**values, **more)


def option(
    default: Any,
    help: str | Callable[[], str],
    *,
    flag: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    parse: Callable[[str], Any] | None = None,
    choices: Callable[[], Iterable[str]] | None = None,
) -> Any:
    """Declare a flag, named like its field; without a default (`...`), it must be given.

    `flag` is a second flag, `metavar` the placeholder of the value in the help, `least` the smallest whole
    number, and `parse` converts the text to the value, or raises `ArgumentTypeError`. `help` and `choices` are
    functions where they depend on installed plug-ins.
    """
    more = {"flag": flag, "metavar": metavar, "least": least, "parse": parse, "choices": choices}
    return field(default=MISSING if default is ... else default, metadata={"help": help, **more})


def argument(help: str, metavar: str, default: Any = ...) -> Any:
    """Declare a positional argument; without a default, it must be given."""
    metadata = {"help": help, "metavar": metavar, "positional": True}
    return field(default=MISSING if default is ... else default, metadata=metadata)


def device_option() -> Any:
    """`--device` of the commands that judge candidates."""
    return option("auto", "where candidates are judged", metavar="cpu|cuda|auto")


def workers_option(what: str) -> Any:
    """`--workers`; `what` names the items that are processed in parallel."""
    return option(None, f"{what} at a time (default: number of CPUs)", least=1)


def processors(workers: int | None) -> int:
    """The number of items to process in parallel: `--workers`, else the number of CPUs."""
    return workers or os.cpu_count() or 1
