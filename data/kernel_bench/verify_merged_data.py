"""Verify the merged file of the current folder: `kernelmill problems verify` under its old name."""

import sys

try:
    from kernelmill.cli import main
except ModuleNotFoundError as error:
    sys.exit(
        f"{sys.argv[0]}: {error} in {sys.executable}: run it with the Python that kernelmill is installed in"
    )

if __name__ == "__main__":
    sys.exit(main(["problems", "verify", *sys.argv[1:]]))
