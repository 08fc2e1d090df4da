"""Merge the level files of the current folder: `kernelmill problems merge` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["problems", "merge", *sys.argv[1:]]))
