"""Decompose some models of a problem set: `kernelmill decompose`, with the set named by `--data`."""

import argparse
import sys
from pathlib import Path

from kernelmill.base.problem_layout import maker_of
from kernelmill.base.terminal import tell
from kernelmill.cli import main
from kernelmill.stages.source_choice import source_line

DATA = Path("data/kernelbench")

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--data FOLDER] [--level N] [--start N] [--count N] [--output OUT] …",
        description="All other options are those of kernelmill decompose.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=DATA,
        metavar="FOLDER",
        help=f"a set of problems (default: {DATA}, which kernelmill problems import makes of KernelBench)",
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this and the other options")
    given, rest = parser.parse_known_args()
    if given.help:
        parser.print_help()
        print()
        sys.exit(main(["decompose", "--help"]))
    tell(source_line(str(given.data), "the default" if given.data == DATA else "given"))
    if not given.data.exists():
        what = maker_of(given.data) or ": name a set of problems with --data"
        sys.exit(f"batch_decompose.py: {given.data}: no such folder{what}")
    sys.exit(main(["decompose", str(given.data), *rest]))
