"""Command lines whose mistakes are one line, like every other failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
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
