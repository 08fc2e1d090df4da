"""Keep the best row of each module: `kernelmill unique` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["unique", *sys.argv[1:]]))
