"""Verify the merged file of the current folder: `kernelmill problems verify` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["problems", "verify", *sys.argv[1:]]))
