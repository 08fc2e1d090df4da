"""Publish the datasets: `kernelmill publish` under its old name."""

import sys

from kernelmill.cli import main

if __name__ == "__main__":
    sys.exit(main(["publish", *sys.argv[1:]]))
