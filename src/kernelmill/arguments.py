"""Command lines whose mistakes are one line, like every other failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from kernelmill.errors import ConfigError


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is a `ConfigError` and not several lines and an exit."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see {self.prog} --help)")


def at_least(least: int) -> Callable[[str], int]:
    """A type for `add_argument`: whole numbers from `least` on. What no machine can count to is the most it can."""

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
