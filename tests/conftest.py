"""What the tests share: rows to run on, a clean environment, and the command line as a process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, settings

from kernelmill import cli
from kernelmill.sandbox import parent
from kernelmill.settings import config
from kernelmill.testing.example_rows import evals_row
from tests import server_templates, servers

__all__ = ["ROOT", "command", "evals_row", "many", "own_children", "quick_command", "read_rows", "write_rows"]

ROOT = Path(__file__).resolve().parents[1]
STARTED_AS_USERS_DO = parent._start_server

# `make test` sets HYPOTHESIS_PROFILE=same: few examples that follow from the test alone, so that a commit gives the same
# answer every time, and what an earlier run found is not tried first. Without it, as in `make test-all`, there are more,
# drawn at random. How fast a busy machine draws and tries them decides nothing in either.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "same", settings.get_profile("random"), derandomize=True, database=None, max_examples=25
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "random"))


def many(examples: int) -> int:
    """The number of examples of a property that needs many: a tenth of them in `make test`."""
    return examples // 10 if settings.default.derandomize else examples  # type: ignore[union-attr]


# A shell's & has its commands ignore Ctrl-C, and what they start as well; the tests of Ctrl-C are to hold there, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The limit of pyproject.toml is for what hangs. What is long by itself has a longer one, so that a busy machine does not reach it."""
    for item in items:
        if item.get_closest_marker("heavy") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No key, no token and no setting of the person who runs the tests reaches them; each runs in its own folder."""
    for name in list(os.environ):
        if name.startswith("KERNELMILL_") or name in (*config.OTHER_VARIABLES, "TEST_MODE", "DATASET_PATH"):
            monkeypatch.delenv(name)
    for name in ("FILTERED_DATASET_PATH", "UNIQUE_DATASET_PATH", "SYNTHETIC_DATASET_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    config.environment.cache_clear()
    yield
    config.environment.cache_clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures of its module, which may need a server as well."""
    own = item.get_closest_marker("own_servers")
    parent._Connection = servers.Connection if own else servers.connect  # type: ignore[assignment, misc]
    parent._start_server = STARTED_AS_USERS_DO if own else server_templates.start_server  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that begins first and ends last
        server_templates.begin()


def pytest_unconfigure(config: pytest.Config) -> None:
    servers.end_all()
    if not hasattr(config, "workerinput"):
        server_templates.end()


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def mill_process(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kernelmill …` as a process in the test's folder."""
    start = command if request.node.get_closest_marker("own_servers") else quick_command

    def run(*arguments: object, env: dict[str, str] | None = None, timeout: float = 240, **more: Any) -> Any:
        return subprocess.run(
            start(*arguments), cwd=more.pop("cwd", tmp_path), env={**os.environ, **(env or {})},
            capture_output=True, text=True, timeout=timeout, **more,
        )  # fmt: skip

    return run


@pytest.fixture
def mill(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kernelmill …` in the test's folder, without a process: the same code, words and files, and no second of imports.

    Not for what is about the process itself: its signals, its memory, what it imports and what it leaves behind.
    """

    def run(*arguments: object, env: dict[str, str] | None = None, timeout: float = 240, **more: Any) -> Any:
        said, errors = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        on_term = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patch:
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.chdir(more.pop("cwd", tmp_path))
            assert not more, more
            patch.setattr(sys, "stdin", io.StringIO())  # nobody to ask
            patch.setattr(sys, "stdout", said)
            patch.setattr(sys, "stderr", errors)
            config.environment.cache_clear()
            try:
                code = cli.main([str(argument) for argument in arguments])
            except SystemExit as ended:  # argparse, after --help or a word that it does not know
                code = ended.code
            finally:
                signal.signal(signal.SIGTERM, on_term)
        texts = []
        for stream in (said, errors):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    return run


def own_children() -> list[psutil.Process]:
    """The processes that the test started, without those that are kept for the next, and without servers from templates."""
    idle = servers.idle_pids()
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.pid not in idle and not _is_kept(child)
    ]


def _is_kept(process: psutil.Process) -> bool:
    """By multiprocessing, for the next pool."""
    try:
        return any("from multiprocessing." in word for word in process.cmdline())
    except psutil.Error:
        return False  # it is ending


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "kernelmill", *map(str, arguments)]


def quick_command(*arguments: object) -> list[str]:
    """The same with servers from templates: not for what is about the processes of a command and their end."""
    return [sys.executable, *server_templates.COMMAND, *map(str, arguments)]
