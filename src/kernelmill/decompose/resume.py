"""Resume an interrupted batch: skip models that an earlier run decomposed and proved.

OUT/.decomposed.jsonl has one line per model: a hash of what it was made from (source, options, this program,
torch) and a digest of its files. A folder counts as done only if both still match. Failed models are retried.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernelmill.decompose.levels import Level
from kernelmill.decompose.model_folder import read_tree
from kernelmill.decompose.prove.prover import Proof
from kernelmill.decompose.sources.problem_files import ModelFile
from kernelmill.decompose.write.tree_file import NotATree

FILE = ".decomposed.jsonl"
_PACKAGES = ("torch", "transformers", "ruff")


class ResumeLog:
    def __init__(self, out: Path, levels: tuple[Level, ...]) -> None:
        self._file = out / FILE
        self._options = [*levels, *map(_version, _PACKAGES), _own_text()]
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        lines = self._file.read_text("utf-8").splitlines() if self._file.exists() else []
        for line in lines:
            try:
                found = json.loads(line)
                self._known[str(found["place"])] = found
            except (ValueError, LookupError, TypeError):
                continue  # torn by a crash: that model is decomposed again
        self._torn = bool(lines) and not self._file.read_bytes().endswith(b"\n")

    def find(self, model: ModelFile, code: str, folder: Path) -> Proof | None:
        """The stored proof of exactly this model, if its folder is unchanged."""
        known = self._known.get(model.output_path)
        if known is None or known["made_from"] != self._made_from(model, code):
            return None
        try:
            if known["digest"] != digest(folder):
                return None
            return Proof(**{**known["proof"], "folder": folder})
        except (OSError, NotATree, LookupError, TypeError):
            return None

    def add(self, model: ModelFile, code: str, proof: Proof, folder: Path) -> None:
        facts = {name: value for name, value in asdict(proof).items() if name != "folder"}
        line = json.dumps(
            {
                "place": model.output_path,
                "made_from": self._made_from(model, code),
                "digest": digest(folder),
                "proof": facts,
            }
        )
        with self._lock, self._file.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._torn else "") + line + "\n")
            self._torn = False

    def _made_from(self, model: ModelFile, code: str) -> str:
        facts = [code, str(model.path), model.name, model.level, list(model.assumptions), *self._options]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def digest(folder: Path) -> str:
    """Digest everything that was proven, without the results.

    Proving again keeps the digest if the proof passes.
    """
    _, tree = read_tree(folder)
    tree["metadata"].pop("timestamp", None)
    found = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".py" or path.name == "weight_map.json":
            found.update(json.dumps([str(path.relative_to(folder)), len(text := path.read_bytes())]).encode())
            found.update(text)
    return found.hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def _own_text() -> str:
    """Digest the code that decomposes and proves: another version may give other results."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()
