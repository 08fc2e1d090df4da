"""Decompose some models of a problem set: `kernelmill decompose`, with the set named by `--data`."""

import argparse
import sys

from kernelmill.cli import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data", default="data/kernelbench")
    given, rest = parser.parse_known_args()
    sys.exit(main(["decompose", given.data, *rest]))
