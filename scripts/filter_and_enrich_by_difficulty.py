"""Keep good rows and rate their difficulty: `kernelmill rate` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["rate", *sys.argv[1:]]))
