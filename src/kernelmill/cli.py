"""The command line. Flags come from the settings classes, commands from `flow.py`.

`kernelmill --help` imports nothing but the standard library, so it answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence

from kernelmill import __version__
from kernelmill.base.terminal import say
from kernelmill.errors import ConfigError, MillError, disk_fault
from kernelmill.flow import COMMANDS, STAGES, TOOLS, Command
from kernelmill.settings.arguments import config_file, nearest
from kernelmill.settings.commands import parser_of, run_tool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code; prints a `MillError` as one line."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a letter shows its code: it must not end the run.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        if sys.stdout is not None:  # it is None if the shell has closed it
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
        return run_tool(command.name, arguments[1:])
    return _run_stage(command, arguments[1:])


def _run_stage(command: Command, arguments: list[str]) -> int:
    from kernelmill.stages.call import call_stage, stage_settings

    file, arguments = config_file(arguments)
    flags = vars(parser_of(command).parse_args(arguments))
    if "sampling" in flags:
        flags["sampling"] = dict(flags["sampling"])
    call_stage(command, stage_settings(command.name, flags, file))
    return 0


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
