"""Write task specifications: `kernelmill specs` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["specs", *sys.argv[1:]]))
