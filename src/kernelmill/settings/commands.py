"""Make the parser of a command from its settings class, and run a tool with the settings that it parses.

A settings class is a pydantic model for a stage and a `ToolSettings` dataclass for a tool; `flow` names it.
The text of a stage's flags is validated by pydantic, together with its file and environment variables
(`config`). The values of a tool's flags are read by argparse. Needs the standard library alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from kernelmill.flow import COMMANDS, Command
from kernelmill.settings.arguments import Parser, at_least
from kernelmill.settings.options import ToolSettings
from kernelmill.settings.registry import referenced


def run_tool(name: str, arguments: list[str]) -> int:
    """Run a tool with the arguments that follow its name. Returns the exit code. Raises `MillError`."""
    command, settings = parse_tool(name, arguments)
    code: int = referenced(command.run)(settings)
    return code


def parse_tool(name: str, arguments: list[str]) -> tuple[Command, Any]:
    """The command or subcommand that the arguments name, and its settings."""
    command = COMMANDS[name]
    parser = parser_of(command)
    if not command.subcommands:
        return command, referenced(command.settings).load(parser, arguments)
    given = parser.parse_args(arguments)
    command = vars(given).pop("command")
    return command, referenced(command.settings).of(given)


def parser_of(command: Command) -> Parser:
    """The parser of a command, with one flag a setting."""
    parser = Parser(prog=f"kernelmill {command.name}", **_frame(command))
    _fill(parser, command)
    return parser


def _frame(command: Command) -> dict[str, Any]:
    """The arguments of the parser itself: the texts around the flags in the help, and how flags are read."""
    frame = {"formatter_class": lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=110)}
    kind = referenced(command.settings)
    if issubclass(kind, ToolSettings):
        words = {"description": kind.__doc__, "epilog": kind.epilog, "usage": kind.usage}
        return {**frame, **words, "allow_abbrev": kind.abbreviations}
    return {
        **frame,
        "description": f"{command.what[0].upper()}{command.what[1:]}.",
        "epilog": "Settings also come from a config file (@ file.toml), .env and KERNELMILL_… variables; a flag wins.",
        "allow_abbrev": False,
        # A flag that is not given is not in the result: its default must not override a config file.
        "argument_default": argparse.SUPPRESS,
    }


def _fill(parser: Parser, command: Command) -> None:
    kind = referenced(command.settings)
    if issubclass(kind, ToolSettings):
        for field in _tool_fields(kind):
            _add(parser, field, _read_as(field))
    else:
        for field in _stage_fields(kind):
            _add(parser, field, _as_text(field))
    if command.subcommands:
        words = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
        for one in command.subcommands:
            inner = words.add_parser(one.name, help=one.what, **_frame(one))
            _fill(inner, one)
            inner.set_defaults(command=one)


class _Field(NamedTuple):
    name: str
    annotation: Any
    default: Any
    help: str
    extra: Mapping[str, Any]
    """The other arguments of `option`, `argument` or `setting`."""

    @property
    def words(self) -> list[str]:
        """The choices, if the annotation is `Literal[…]` or `Literal[…] | None`; else empty."""
        kinds = (self.annotation, *get_args(self.annotation))
        return [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]


def _tool_fields(kind: type[ToolSettings]) -> Iterator[_Field]:
    annotations = get_type_hints(kind)
    for field in fields(kind):
        if text := field.metadata.get("help"):
            text = text() if callable(text) else text
            yield _Field(field.name, annotations[field.name], field.default, text, field.metadata)


def _stage_fields(kind: Any) -> Iterator[_Field]:
    for name, field in kind.model_fields.items():
        extra, text, default = field.json_schema_extra or {}, field.description, field.default
        if name == "source":
            extra, text = {"metavar": "SOURCE", "positional": True}, f"{text}: file, folder or Hub dataset"
        elif name == "sampling":
            extra, text = {"metavar": "KEY=VALUE", "parse": _pair}, "temperature, top_p, max_tokens, seed, …"
            default = None  # it is an empty model, which the help does not show
        if text is not None:
            yield _Field(name, field.annotation, default, text, extra)


def _add(parser: Parser, field: _Field, how: dict[str, Any]) -> None:
    text = f"{field.help}{_shown_default(field)}".replace("%", "%%")
    if field.extra.get("positional"):
        parser.add_argument(field.name, metavar=field.extra["metavar"], help=text, **how)
        return
    # A field named like a keyword of Python ends with an underscore: `from_`.
    main, other = f"--{field.name.rstrip('_').replace('_', '-')}", field.extra.get("flag")
    # A second flag of several letters is an old spelling, and comes last.
    flags = [main] if not other else [main, other] if other.startswith("--") else [other, main]
    parser.add_argument(*flags, dest=field.name, help=text, **how)


def _shown_default(field: _Field) -> str:
    default = ", ".join(field.default) if isinstance(field.default, tuple) else field.default
    # Not `in (None, False, "")`: 0 == False, and a default of 0 is shown.
    hidden = default is None or default is False or default == "" or default is MISSING
    return "" if hidden or "(default" in field.help else f" (default: {default})"


def _as_text(field: _Field) -> dict[str, Any]:
    """How argparse keeps a stage's value, as text for pydantic."""
    if field.extra.get("positional"):
        return {"nargs": "?"}
    if field.annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    how: dict[str, Any] = {"metavar": "|".join(field.words) or _metavar(field)}
    if parse := field.extra.get("parse"):
        return {**how, "action": "append", "type": parse}
    if get_origin(field.annotation) is tuple:
        return {**how, "action": "append"}
    bare = field.extra.get("bare")
    return how if bare is None else {**how, "nargs": "?", "const": bare}


def _read_as(field: _Field) -> dict[str, Any]:
    """How argparse reads a tool's value."""
    extra, default = field.extra, field.default
    required = default is MISSING
    kind = next((one for one in get_args(field.annotation) if one is not NoneType), field.annotation)
    if kind is bool:
        return {"action": "store_true" if field.annotation is bool else argparse.BooleanOptionalAction}
    how: dict[str, Any] = {"default": None if required else default}
    several, choices = get_origin(field.annotation) is tuple, field.words
    if extra.get("parse"):
        # `parse` may return a tuple, or a value that is none of the choices, so both are left to it.
        how["type"], several, choices = extra["parse"], False, []
    elif extra.get("least") is not None:
        how["type"] = at_least(extra["least"])
    elif kind in (int, float, Path):
        how["type"] = kind
    if extra.get("positional"):
        nargs = ("+" if required else "*") if several else None if required else "?"
        return {**how, "nargs": nargs}
    if extra["choices"]:
        choices = list(extra["choices"]())
    if choices:
        return {**how, "choices": choices, "metavar": extra["metavar"]}
    if several:
        how |= {"action": "append", "default": list(default)}
    return {**how, "metavar": _metavar(field), "required": required}


def _metavar(field: _Field) -> str:
    """The placeholder of a value in the help: by its type, else the last word of the setting's name."""
    if given := field.extra.get("metavar"):
        return str(given)
    kinds = {field.annotation, *get_args(field.annotation)}
    if Path in kinds:
        return "FILE"
    return "N" if int in kinds else field.name.split("_")[-1].upper()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE, such as temperature=0.6")
    return key, value
