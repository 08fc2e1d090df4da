"""Argument parsers: errors are one line, and every command accepts a config file."""

from __future__ import annotations

import argparse
import difflib
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kernelmill.errors import ConfigError
from kernelmill.flow import COMMANDS

TABLES = ("llm", "prices", *COMMANDS)
"""The tables of a config file: those that stages with a model share, and one for each command. A command reads
its own table and ignores those of the others."""
CONFIG_HELP = "TOML file (same as @ FILE); a flag wins over it"


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises `ConfigError`, and accepts a config file for every command.

    The file's table is named after the command (`[evaluate]`, `[problems.import]`), its keys after the
    flags and the positional arguments. Its values are inserted before the typed arguments, so flags
    override them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help=CONFIG_HELP)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")

    more_tables: tuple[str, ...] = ()
    """Further keys that a file of this command may have."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = [word for one in self._actions if isinstance(one, argparse._SubParsersAction) for word in one.choices]  # fmt: skip
        file, rest = config_file(list(args)) if args is not None else (None, [])
        if file is not None and words:
            # The subcommand's parser reads its own table; only this one knows all subcommands.
            for word in table_of(file, self.prog.split()[1:]):
                if word not in words:
                    own = ".".join([*self.prog.split()[1:], word])
                    raise ConfigError(f"{file}: unknown key {own} ({nearest(word, words)})")
        elif file is not None:
            args = self._told(file, rest) + rest
        return super().parse_known_args(args, namespace)

    def _told(self, file: Path, typed: list[str]) -> list[str]:
        """Convert the file's values to arguments. Positional ones are used only if none was typed."""
        words = self.prog.split()[1:]
        told: list[str] = []
        for key, value in table_of(file, words, self.more_tables).items():
            flag = f"--{key.replace('_', '-')}"
            action = self._option_string_actions.get(flag)
            if action is None:
                action = next(
                    (one for one in self._get_positional_actions() if key in (one.dest, _word(one))), None
                )
                if action is None or flag == "--config":
                    raise ConfigError(
                        f"{file}: [{'.'.join(words)}] has no setting {key} (see {self.prog} --help)"
                    )
                if not self._typed_positionals(typed):
                    told += [str(one) for one in (value if isinstance(value, list) else [value])]
            elif action.nargs == 0:
                told += [flag] if value is True else []
            elif isinstance(action, argparse.BooleanOptionalAction):
                told += [flag if value else f"--no-{flag[2:]}"]
            elif isinstance(value, list) and isinstance(action, argparse._AppendAction):
                told += [f"{flag}={one}" for one in value]
            else:
                told.append(f"{flag}={','.join(map(str, value)) if isinstance(value, list) else value}")
        return told

    def _typed_positionals(self, typed: list[str]) -> bool:
        """Whether a positional argument was typed."""
        takes_value = False
        for argument in typed:
            if argument.startswith("-"):
                action = self._option_string_actions.get(argument)
                takes_value = action is not None and action.nargs != 0
            elif not takes_value:
                return True
            else:
                takes_value = False
        return False


def _word(action: argparse.Action) -> str:
    return action.metavar.lower() if isinstance(action.metavar, str) else ""


def nearest(word: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The hint for an unknown word. `also` is listed with the known words, but never suggested."""
    known = list(known)
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join([*known, *also])}"


def check_tables(file: Path | str, content: Mapping[str, Any], more: Iterable[str] = ()) -> None:
    """Raise for a table that no command reads. `more` are further keys that this command accepts."""
    for name, table in content.items():
        if name in more:
            continue
        if name not in TABLES:
            raise ConfigError(f"{file}: unknown key {name} ({nearest(name, [*more, *TABLES])})")
        if not isinstance(table, dict):
            raise ConfigError(f"{file}: {name} must be a table ([{name}])")


def table_of(file: Path, words: list[str], more: Iterable[str] = ()) -> dict[str, Any]:
    """Read this command's table of a TOML file."""
    try:
        found: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{file}: {getattr(error, 'strerror', None) or error}") from None
    check_tables(file, found, more)
    for word in words:
        found = found.get(word, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def at_least(least: int) -> Callable[[str], int]:
    """A type for `add_argument`: whole numbers from `least` on, capped at half of `sys.maxsize`."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"{text}: expected a whole number from {least} on")
        return min(found, sys.maxsize // 2)

    return number


def config_file(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """Take `@ file` (or `@file`, or `--config file`) out of the arguments."""
    rest: list[str] = []
    file: Path | None = None
    waiting = False
    for before, argument in zip(["", *arguments], arguments, strict=False):
        if waiting:
            if argument.startswith("-"):
                break
            file, waiting = Path(argument), False
        elif argument in ("@", "--config"):
            waiting = True
        elif argument.startswith("@") and (not before.startswith("-") or Path(argument[1:]).is_file()):
            # After an option it may be a value: some models are called `@org/name`.
            file = Path(argument[1:])
        elif argument.startswith("--config="):
            file = Path(argument.removeprefix("--config="))
        else:
            rest.append(argument)
    if waiting:
        raise ConfigError("@ needs a config file: kernelmill rate @ configs/pipeline.toml")
    return file, rest
