"""Count tokens under a chat template: `kernelmill lengths` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["lengths", *sys.argv[1:]]))
