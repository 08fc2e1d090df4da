"""What the benchmarks share: a server process, made-up rows, a measured child process, a results file."""

from __future__ import annotations

import datetime
import json
import os
import platform
import random
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import psutil  # type: ignore[import-untyped]

from kernelmill.testing.example_rows import evals_row

RESULTS = Path(__file__).parent / "results"
SAMPLES = Path(__file__).parents[1] / "data/samples/evals.jsonl"


class Measured(NamedTuple):
    seconds: float
    cpu: float
    peak_mb: float
    stdout: str


@contextmanager
def server(latency: float, *more: str) -> Iterator[str]:
    """The fake endpoint in a process of its own, with these further flags; gives its base URL."""
    line = [sys.executable, "-m", "kernelmill.testing.fake_endpoint", "--latency", str(latency), *more]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def write_evals(path: Path, rows: int, code_bytes: int, row_bytes: int) -> None:
    """Evals rows whose module has about `code_bytes` of source and which have about `row_bytes` in all."""
    with path.open("w", encoding="utf-8") as file:
        for n in range(rows):
            row = evals_row(n, 1.25, code_bytes=code_bytes, answer_bytes=row_bytes - code_bytes - 1000)
            file.write(json.dumps(row) + "\n")


def write_samples(path: Path, rows: int, row_bytes: int, modules: int) -> None:
    """Evals rows made of the bundled samples: real modules and kernels, each module of a kind, thoughts up to `row_bytes`.

    `rows / modules` rows share a module, as the rollouts of a real run do.
    """
    samples = [json.loads(line) for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    prose = " ".join(sample["completion"][0]["content"] for sample in samples)
    prose = re.sub(r"</?(?:think|answer)>", "", prose)
    chance = random.Random(1)
    with path.open("w", encoding="utf-8") as file:
        for n in range(rows):
            module = n % modules
            own = random.Random(module)
            sample = own.choice(samples)
            name = sample["info"]["module_name"]
            step = f"    def step(self, y):\n        return (y * {own.random():.4f}).clamp({own.randrange(99)}) + {own.randrange(999)}\n\n"
            code = sample["info"]["python_code"].replace(name, f"{name}{module}")
            code = code.replace("    def forward(", step + "    def forward(", 1)
            row = sample | {"example_id": module, "reward": round(chance.random() * 2, 4)}
            row["info"] = sample["info"] | {"module_name": f"{name}{module}", "python_code": code}
            answer = f"<answer>\n{sample['answer']}\n</answer>"
            row["completion"] = [{"role": "assistant", "content": answer}]
            missing = max(0, row_bytes - len(json.dumps(row)) - 20)
            start = chance.randrange(max(1, len(prose) - missing))
            thoughts = f"<think>{prose[start : start + missing]}</think>"
            row["completion"] = [{"role": "assistant", "content": thoughts + answer}]
            file.write(json.dumps(row) + "\n")


def measured(line: list[str], **more: Any) -> Measured:
    """Run a command to its end; its wall time, its CPU time without its children's, and the peak memory of all of them."""
    started = time.monotonic()
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    children = _ChildrenPeak(process.pid)
    children.start()
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        sys.exit(f"{' '.join(line)}\n{stderr}")
    return Measured(
        time.monotonic() - started, usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024 + children.peak / 2**20, stdout,
    )  # fmt: skip


class _ChildrenPeak(threading.Thread):
    """The most memory that the children of a process have for themselves, all together, looked at five times a second."""

    def __init__(self, parent: int) -> None:
        super().__init__(daemon=True)
        self._parent = psutil.Process(parent)
        self.peak = 0

    def run(self) -> None:
        try:
            while self._parent.is_running():
                self.peak = max(self.peak, sum(map(_own_memory, self._parent.children(recursive=True))))
                time.sleep(0.2)
        except psutil.NoSuchProcess:
            return


def _own_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0  # it has just ended


def machine() -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "openai": version("openai"),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def save(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps({"machine": machine(), **result}, indent=2) + "\n")
    print(json.dumps(result, indent=2))


def text_of(checkout: Path, file: str) -> str:
    """A file of a checkout, or of HEAD where a git directory without one is given."""
    if (checkout / file).is_file():
        return (checkout / file).read_text(encoding="utf-8")
    return _git(checkout, "show", f"HEAD:{file}")


def commit_of(checkout: Path) -> str:
    return _git(checkout, "rev-parse", "HEAD").strip()


def _git(checkout: Path, *arguments: str) -> str:
    # Said outright: git would look upwards for another repository.
    folder = checkout / ".git" if (checkout / ".git").exists() else checkout
    line = ["git", f"--git-dir={folder}", *arguments]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout
