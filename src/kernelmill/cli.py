"""The command line. Flags come from the settings classes, commands from `flow.py`.

`kernelmill --help` imports nothing but the standard library, so it answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from kernelmill import __version__
from kernelmill.base.terminal import say
from kernelmill.errors import ConfigError, MillError, disk_fault
from kernelmill.flow import COMMANDS, STAGES, TOOLS, Command
from kernelmill.settings.arguments import Parser, config_file, nearest
from kernelmill.settings.registry import referenced, stage_classes

if TYPE_CHECKING:
    from kernelmill.settings.base import Settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; prints a `MillError` as one line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter shows its code: it must not end the run.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # it is, where the shell has closed it
            sys.stdout.flush()
        return code
    except MillError as error:
        return _fail(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has gone, as `head` does. Python would complain once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        said = disk_fault(error)
        if said is None and not error.filename:
            raise
        return _fail(said or f"{error.filename}: {error.strerror}", 1)


def synthesize() -> int:
    """The command `synthesize`, which is `kernelmill synthesize`."""
    return main(["synthesize", *sys.argv[1:]])


def _fail(message: str, code: int) -> int:
    from kernelmill.settings.config import redact

    say(f"kernelmill: {' '.join(redact(message).split())}")
    return code


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(f"kernelmill {__version__}")
        return 0
    command = COMMANDS.get(arguments[0])
    if command is None:
        raise ConfigError(f"unknown command {arguments[0]} ({nearest(arguments[0], COMMANDS)})")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing half-made stays behind
    if command in TOOLS:
        code: int = referenced(command.run)(arguments[1:])
        return code
    return _run_stage(command, arguments[1:])


def _run_stage(command: Command, arguments: list[str]) -> int:
    from kernelmill.stages.call import call_stage, stage_settings

    file, arguments = config_file(arguments)
    flags = vars(stage_parser(command, stage_classes()[command.name]).parse_args(arguments))
    if "sampling" in flags:
        flags["sampling"] = dict(flags["sampling"])
    call_stage(command, stage_settings(command.name, flags, file))
    return 0


def stage_parser(command: Command, kind: type[Settings]) -> argparse.ArgumentParser:
    """A parser with one flag a setting. What is not given is not in the result, so that it does not override a file."""
    parser = Parser(
        prog=f"kernelmill {command.name}",
        description=f"{command.what[0].upper()}{command.what[1:]}.",
        epilog="Settings also come from a config file (@ file.toml), .env and KERNELMILL_… variables; a flag wins.",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=110),
    )
    for name, field in kind.model_fields.items():
        if name == "source":
            parser.add_argument(
                "source",
                nargs="?",
                metavar="SOURCE",
                help=f"{field.description}: file, folder or Hub dataset (default: {field.default})",
            )
            continue
        if name == "sampling":
            parser.add_argument(
                "--sampling",
                metavar="KEY=VALUE",
                action="append",
                type=_pair,
                help="temperature, top_p, max_tokens, seed, …",
            )
            continue
        if field.description is None:
            continue
        _add_flag(parser, name, field)
    return parser


def _add_flag(parser: argparse.ArgumentParser, name: str, field: Any) -> None:
    extra = field.json_schema_extra or {}
    # A further flag of several letters is an old spelling.
    other, main = extra.get("flag"), f"--{name.replace('_', '-')}"
    flags = [main] if not other else [main, other] if other.startswith("--") else [other, main]
    several = get_origin(field.annotation) is tuple
    default = ", ".join(field.default) if several else field.default
    # Not `in (None, False, "")`: 0 == False, and a default of 0 is shown.
    shown = "" if default is None or default is False or default == "" else f" (default: {default})"
    text = f"{field.description}{shown}".replace("%", "%%")
    if field.annotation is bool:
        parser.add_argument(*flags, action=argparse.BooleanOptionalAction, help=text)
        return
    # A choice may also be left out: Literal[…] | None.
    kinds = (field.annotation, *get_args(field.annotation))
    words = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    metavar = "|".join(words) if words else extra.get("metavar") or _metavar(name, field.annotation)
    bare = {} if extra.get("bare") is None else {"nargs": "?", "const": extra["bare"]}
    parser.add_argument(
        *flags, metavar=metavar, dest=name, help=text, action="append" if several else "store", **bare
    )


def _metavar(name: str, annotation: Any) -> str:
    """What stands for a value in the help: what it is, where the type says it, else the last word of the setting's name."""
    kinds = {annotation, *get_args(annotation)}
    if Path in kinds:
        return "FILE"
    return "N" if int in kinds else name.split("_")[-1].upper()


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected KEY=VALUE, such as temperature=0.6")
    return key, value


def _overview() -> str:
    def lines(commands: list[Command]) -> str:
        return "\n".join(f"  {command.name:<19}{command.what}" for command in commands)

    return (
        "kernelmill: verified PyTorch-to-Triton training data\n\n"
        "usage: kernelmill COMMAND [SOURCE] [options]\n"
        "Run `kernelmill COMMAND --help` for options.\n\n"
        f"stages, in the usual order (specs and lengths are side branches):\n{lines(STAGES)}\n\n"
        f"tools:\n{lines(TOOLS)}\n\n"
        "A source is a file (.jsonl, .jsonl.gz, .jsonl.zst, .parquet), a folder, or a Hub dataset (org/name).\n"
        "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 stopped early or incomplete: run the same command again (or a\n"
        "verdict that evaluate --fail-on names), 130 interrupted."
    )


if __name__ == "__main__":
    sys.exit(main())
