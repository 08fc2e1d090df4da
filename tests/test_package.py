"""The package as it is installed from a wheel: prompts and bundled data come along and are found."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernelmill.errors import SourceError
from kernelmill.store import open_source
from tests.conftest import ROOT, read_rows


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_an_installed_package_runs_on_what_ships_with_it(installed: Path, tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "kernelmill",
        "rate",
        "bundled:samples/evals.jsonl",
        "-o",
        "out.jsonl",
        "--rater",
        "static",
        "--no-trace",
    ]
    done = subprocess.run(
        line,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert len(read_rows(tmp_path / "out.jsonl")) == 35
    where = subprocess.run(
        [sys.executable, "-c", "from kernelmill.base.resources import bundled; print(bundled('prompts/rate.md'), bundled('data/problems'))"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(installed)}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert all(path.startswith(str(installed)) for path in where)


def test_bundled_sources_open_from_any_folder_and_do_not_show_where_they_lie() -> None:
    rows = list(open_source("bundled:samples/evals.jsonl").rows())
    assert len(rows) == 60
    assert rows[0].where == "bundled:samples/evals.jsonl:1"
    problems = list(open_source("bundled:problems").rows())
    assert len(problems) == 40
    assert problems[0].where == "bundled:problems/level1/1_TransposeCopy.py"
    with pytest.raises(SourceError, match="not among what ships"):
        open_source("bundled:nothing")
