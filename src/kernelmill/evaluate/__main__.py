"""Run `kernelmill evaluate …` as `python -m kernelmill.evaluate …`, with only torch, triton and numpy."""

from __future__ import annotations

import io
import signal
import sys

from kernelmill.base.terminal import say
from kernelmill.errors import MillError
from kernelmill.settings.commands import run_tool


def run() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C, so that clean-up runs
    try:
        return run_tool("evaluate", sys.argv[1:])
    except MillError as error:
        say(f"kernelmill: {' '.join(str(error).split())}")
        return error.exit_code
    except KeyboardInterrupt:
        say("kernelmill: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(run())
