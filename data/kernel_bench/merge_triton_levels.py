"""Merge the level files of the current folder: `kernelmill problems merge` under its old name."""

import sys

try:
    from kernelmill.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"{sys.argv[0]}: {error} in {sys.executable}: run it with the Python that kernelmill is installed in"
    )

if __name__ == "__main__":
    sys.exit(main(["problems", "merge", *sys.argv[1:]]))
