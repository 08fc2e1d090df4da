"""A Python that has every installed package but one: for tests of what happens without it.

A folder of links to what is installed takes the place of `site-packages`. It is also what confined processes get, which start
from this process's path; so nothing has to be blocked, and nothing can find the package by another way.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.conftest import ROOT

_RUN = """
import sys
sys.path += sys.argv.pop(1).split("|")
from kernelmill.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without(package: str, folder: Path) -> Path:
    """The folder of links."""
    folder.mkdir()
    for place in dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")):
        for entry in Path(place).iterdir():
            if entry.name != package and not entry.name.startswith(f"{package}-"):
                (folder / entry.name).symlink_to(entry)
    return folder


def run(packages: Path, *arguments: str, cwd: Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """`kernelmill …` with these packages. -S: the real `site-packages` is not looked at."""
    path = f"{packages}|{ROOT / 'src'}"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", _RUN, path, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
