"""Decompose and prove many models independently: a model that fails does not stop the others.

Each model is built in a temporary folder, proven there, and renamed once complete. A model that cannot be
decomposed has no folder, and one line says why. If the proof fails and symbolic sizes (`hidden // 4`) may be
the cause, the model is decomposed once more with all sizes as literal numbers.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kernelmill.base.locks import take_lock
from kernelmill.base.problem_layout import LEVEL
from kernelmill.base.python_text import NoFormatter, ruff_format
from kernelmill.base.terminal import size
from kernelmill.decompose.analysis import analysis
from kernelmill.decompose.errors import BadSource
from kernelmill.decompose.levels import FOLDERS, LEVELS, Level
from kernelmill.decompose.model_folder import (
    MANIFEST,
    keep_levels,
    may_replace,
    opened,
    ours,
    put_in_place,
    read_tree,
    unpacked,
    write_manifest,
    write_model,
)
from kernelmill.decompose.prove.prover import RESULTS, SUMMARIES, Proof, Prover, environment_of, prove_folder
from kernelmill.decompose.resume import ResumeLog
from kernelmill.decompose.sources.local_imports import read_source, with_local_modules
from kernelmill.decompose.sources.problem_files import UNKNOWN, ModelFile
from kernelmill.decompose.write.picture import svg
from kernelmill.decompose.write.tree_file import TreeFile
from kernelmill.errors import ConfigError, OutputError
from kernelmill.runner import ItemProgress, Threads, run_all
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.pool import Pool

MEMORY_MB = 5120
_WORKER = "kernelmill.decompose.worker"
_ALLOCATED = re.compile(r"tried to allocate (\d+) bytes")
_NOT_INSTALLED = re.compile(r"(?:.*: )?ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass
class Outcome:
    """The result for one model.

    Without a tree, decomposition failed and `reason` says why; else see the proof.
    """

    model: ModelFile
    status: Literal["PASS", "FAIL", "ERROR"]
    reason: str = ""
    tree: TreeFile | None = None
    raw: dict[str, Any] | None = None
    """The tree as it is stored in its file."""
    proof: Proof | None = None
    seconds: float = 0.0
    before: bool = False
    """Whether an earlier run produced it."""


class Stop(Exception):
    """The command was interrupted: incomplete output is removed."""


class Decomposer:
    """Decompose `workers` models at a time.

    Each model, and each claim of its proof, gets one sandboxed process with `timeout` seconds and
    `memory_mb`.
    """

    def __init__(
        self,
        out: Path,
        workers: int,
        timeout: float,
        levels: tuple[Level, ...] = LEVELS,
        memory_mb: int = MEMORY_MB,
        force: bool = False,
    ) -> None:
        """Reuse the results of earlier runs, unless `force`."""
        self._out, self._workers, self._timeout, self._levels = out, workers, timeout, levels
        self._memory_mb, self._force = memory_mb, force
        self.progress = ItemProgress("models decomposed")
        self._stack = ExitStack()
        self._stopped = threading.Event()
        self._prover: Prover | None = None
        self._servers = self._stack.enter_context(Pool(partial(_server, workers, timeout, memory_mb)))

    def __enter__(self) -> Decomposer:
        try:
            ruff_format()
        except NoFormatter as error:
            raise ConfigError(str(error)) from None
        if self._out.exists() and not self._out.is_dir():
            raise OutputError(f"{self._out} is not a folder")
        if not ours(self._out):
            raise OutputError(f"{self._out} holds a set of problems: name another folder with -o")
        busy = f"another process is writing to {self._out}"
        self._stack.enter_context(take_lock(self._out / MANIFEST, busy))
        for left in left_behind(self._out):
            shutil.rmtree(left, ignore_errors=True)
        self._resume_log = ResumeLog(self._out, self._levels)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def close(self) -> None:
        """Stop early: each thread removes its incomplete output."""
        self._stopped.set()

    def run(self, models: Sequence[ModelFile], done: Callable[[Outcome], None]) -> list[Outcome]:
        """Decompose all models and return the outcomes in input order.

        `done` is called with each outcome as soon as it is known. Raises `OutputError` if nothing can be
        written.
        """
        places: dict[str, ModelFile] = {}
        codes: dict[ModelFile, str] = {}

        def known(model: ModelFile) -> Outcome | None:
            try:
                if (first := places.setdefault(model.output_path, model)) is not model:
                    raise BadSource(f"output folder {model.output_path} is already used by {first.path}")
                codes[model] = source_of(model)
                outcome = self._done_before(model, codes[model])
            except BadSource as error:
                outcome = Outcome(model, "ERROR", str(error))
            if outcome is not None:
                done(outcome)
            return outcome

        def threads(owed: Sequence[ModelFile]) -> Threads[ModelFile, Outcome]:
            servers = self._start([codes[model] for model in owed])
            return Threads(lambda model: self._one(model, codes[model]), self._workers, self, *servers)

        try:
            return run_all(
                models, threads, self.progress, lambda model: model.output_path, known=known, done=done
            )
        finally:  # an interrupted batch has results too
            write_manifest(self._out)

    def _done_before(self, model: ModelFile, code: str) -> Outcome | None:
        """The outcome of an earlier run, if it still holds."""
        proof = None if self._force else self._resume_log.find(model, code, self._out / model.output_path)
        if proof is None:
            return None
        tree, raw = read_tree(self._out / model.output_path)
        return Outcome(model, "PASS", "", tree, raw, proof, before=True)

    def _start(self, codes: list[str]) -> list[Pool | Prover]:
        """Start the servers that all models need, before any thread exists."""
        self._prover = self._stack.enter_context(Prover(self._workers, self._timeout, self._memory_mb))
        for code in codes:
            self._prover.start(code)
            self._servers.get(environment_of(code)).start()
        for code in codes:
            self._servers.get(environment_of(code)).what_is_missing()  # waits until it is ready
        return [self._servers, self._prover]

    def _one(self, model: ModelFile, code: str) -> Outcome:
        started = time.monotonic()
        target = self._out / model.output_path
        temporary = target.with_name(f".{target.name}.tmp")
        why_not = may_replace(target, model.path, code)
        if why_not is not None:
            return Outcome(model, "ERROR", why_not)
        try:
            try:
                outcome = self._decomposed(model, code, temporary)
            except BadSource as error:
                outcome = Outcome(model, "ERROR", str(error))
            if self._stopped.is_set():
                raise Stop
            if outcome.tree is None:
                shutil.rmtree(target, ignore_errors=True)  # an earlier run's result is no longer valid
            else:
                put_in_place(temporary, target)
                if outcome.status == "PASS" and outcome.proof is not None:
                    self._resume_log.add(model, code, outcome.proof, target)
        except OSError as error:
            raise OutputError(f"{error.filename or target} cannot be written ({error.strerror})") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        outcome.seconds = time.monotonic() - started
        return outcome

    def _decomposed(self, model: ModelFile, code: str, folder: Path) -> Outcome:
        """Decompose and prove a model in its temporary folder."""
        files = self._files(model, code, symbolic_sizes=True)
        proof = self._proven(folder, files, code)
        failed = failed_texts(folder) if proof.status != "PASS" else []
        if failed and not self._stopped.is_set():
            plain = self._files(model, code, symbolic_sizes=False)
            other = [path for path, text in plain.items() if files.get(path) != text]
            # Retry only if the files of every failed claim changed: a claim with the same files would fail
            # again.
            if all(any(path.startswith(texts) for path in other) for texts in failed):
                proof = self._proven(folder, plain, code)
        try:
            if set(self._levels) != set(LEVELS):
                keep_levels(folder, self._levels)
            tree, raw = read_tree(folder)
        except ValueError as error:
            raise BadSource(" ".join(str(error).split())[:300]) from None
        (folder / "tree.svg").write_text(svg(raw), encoding="utf-8")
        (folder / "decomposition_analysis.md").write_text(analysis(raw, proof), encoding="utf-8")
        status: Literal["PASS", "FAIL"] = "PASS" if proof.status == "PASS" else "FAIL"
        return Outcome(model, status, "", tree, raw, proof)

    def _files(self, model: ModelFile, code: str, symbolic_sizes: bool) -> dict[str, str]:
        reply = self._servers.get(environment_of(code)).run_sync(
            {
                "code": code,
                "name": model.name,
                "source_file": str(model.path),
                "source_level": model.level,
                "symbolic_sizes": symbolic_sizes,
                "assumptions": list(model.assumptions),
            }
        )
        if reply["kind"] != "ok":
            raise BadSource(_why(reply, self._memory_mb))
        return unpacked(reply["result"])

    def _proven(self, folder: Path, files: dict[str, str], code: str) -> Proof:
        assert self._prover is not None
        shutil.rmtree(folder, ignore_errors=True)
        write_model(folder, files, code)
        return prove_folder(folder, self._prover)


def graph(model: ModelFile, timeout: float, memory_mb: int = MEMORY_MB) -> dict[str, Any]:
    """Record what a model calls, without decomposing it. Raises `BadSource`."""
    code = source_of(model)
    with _server(1, timeout, memory_mb, environment_of(code)) as server:
        server.what_is_missing()  # waits until it is ready
        reply = server.run_sync({"graph": True, "code": code})
    if reply["kind"] != "ok":
        raise BadSource(_why(reply, memory_mb))
    return {"model": model.name, "source": code, "assumptions": list(model.assumptions)} | opened(
        reply["result"]
    )


def _server(workers: int, timeout: float, memory_mb: int, environment: Mapping[str, str]) -> Sandbox:
    return Sandbox(_WORKER, workers, timeout, memory_mb, environment=environment)


def source_of(model: ModelFile) -> str:
    """The source text of a model: its file, with the local modules that it imports."""
    if model.code is not None:
        return model.code
    return with_local_modules(read_source(model.path, "it"), model.path.parent, model.path.name)


def _why(reply: Reply, memory_mb: int) -> str:
    message = " ".join(reply["message"].split())
    if reply["kind"] == "out_of_memory" or "MemoryError" in (reply["type"], message.partition(":")[0]):
        asked = _ALLOCATED.search(message)
        tried = f": it tried to allocate {size(int(asked[1]))}" if asked else ""
        return f"out of memory (limit {size(memory_mb << 20)}){tried}"
    if missing := _NOT_INSTALLED.match(message):
        package = missing[1].partition(".")[0]
        if importlib.util.find_spec(package) is None:
            return f"it needs {package}, which is not installed"
    if reply["kind"] == "timeout":
        return f"it {message}: --timeout gives it longer"
    if reply["kind"] == "error":
        return message if reply["type"] == "CannotRecord" else f"{reply['type']}: {message}"
    return f"{reply['kind'].replace('_', ' ')}: {message}"


def left_behind(out: Path) -> list[Path]:
    """Folders that a killed process left: models that were incomplete, or were being replaced."""
    return [
        folder
        for ending in ("tmp", "old")
        for folder in out.glob(f"*/.*.{ending}")
        if folder.is_dir() and (folder.parent.name == UNKNOWN or LEVEL.fullmatch(folder.parent.name))
    ]


def failed_texts(folder: Path) -> list[tuple[str, ...]]:
    """For each claim that does not hold, the path prefixes of its files.

    Empty where other files would not help: a claim did not start or did not finish (time, memory), the tree
    is wrong, or it could not be read.
    """
    verification = folder / "verification"
    if not (verification / SUMMARIES[1]).exists():
        return []  # the tree could not be read
    summary = json.loads((verification / SUMMARIES[1]).read_bytes())
    claims: dict[Path, tuple[str, ...]] = {
        file: (f"steps/{file.parent.name}/",) for file in (folder / "steps").glob(f"*/{RESULTS[0]}")
    }
    claims[verification / SUMMARIES[0]] = ("verification/", f"{FOLDERS['kernel']}/")
    failed: list[tuple[str, ...]] = []
    for file, texts in claims.items():
        result = json.loads(file.read_bytes())
        if result["status"] == "ERROR" and result["anticheat"]["status"] == "NOT_RUN":
            return []
        if result["status"] != "PASS":
            failed.append(texts)
    # A fault starts with its file: "level_0_kernel/gelu_fp32.py does not run: …",
    # "level_0_kernel/gelu_fp32.py: its outputs are …"
    failed += [(re.split("[ :]", fault)[0],) for fault in summary["level_files"]["faults"]]
    return [] if summary["tree_faults"] else failed
