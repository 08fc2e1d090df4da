"""Reduce answers to the answer alone, from the Hub to the Hub: `kernelmill strip --hub` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["strip", "--hub", *sys.argv[1:]]))
