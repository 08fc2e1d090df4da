"""Reduce answers to the answer alone: `kernelmill strip` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["strip", *sys.argv[1:]]))
