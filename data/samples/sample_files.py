"""Read the sample's source files: modules, candidates, and the answer inside a candidate.

Standard library only, so that the GPU script can use it on a bare machine. It reads the formats that this
folder holds (README.md) and nothing more; the reader for other people's rows is in the package.
"""

from __future__ import annotations

import ast
import hashlib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODULES = HERE / "modules"
CANDIDATES = (1, 2)

_OPEN, _CLOSE = "<answer>", "</answer>"
_REASONING = "reasoning:\n---\n"


class SampleFileError(ValueError):
    """A file of the sample is not in the format that README.md describes."""


@dataclass(frozen=True)
class Reference:
    folder: str
    class_name: str
    source: str


@dataclass(frozen=True)
class Candidate:
    folder: str
    number: int
    reasoning: str | None
    content: str
    code: str


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def folders() -> list[str]:
    """The module folders, sorted: the order of the rows in evals.jsonl."""
    return sorted(path.name for path in MODULES.iterdir() if (path / "module.py").is_file())


def read_reference(folder: str) -> Reference:
    """A module's source and its class: named as the folder, or as the folder up to its last underscore."""
    path = MODULES / folder / "module.py"
    source = path.read_text(encoding="utf-8")
    classes = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    for name in (folder, folder.rpartition("_")[0]):
        if name in classes:
            return Reference(folder, name, source)
    raise SampleFileError(f"{path}: no class is named as the folder")


def split_reasoning(text: str) -> tuple[str | None, str]:
    """Part a candidate file into the separate reasoning field (None where it has none) and the content."""
    if not text.startswith(_REASONING):
        return None, text.strip("\n")
    reasoning, mark, content = text[len(_REASONING) :].partition("\n---\n")
    if not mark:
        raise SampleFileError("the reasoning block is not closed by a line '---'")
    return reasoning.strip("\n"), content.strip("\n")


def extract_code(content: str) -> str:
    """The code of the last complete answer. Prose may name the opening tag before it; one answer may close."""
    if content.count(_CLOSE) != 1:
        raise SampleFileError(f"{content.count(_CLOSE)} closing answer tags, expected one")
    head, _, _ = content.partition(_CLOSE)
    _, mark, body = head.rpartition(_OPEN)
    if not mark:
        raise SampleFileError("no opening answer tag before the closing one")
    body = body.strip()
    if body.startswith("```python\n"):
        if not body.endswith("\n```"):
            raise SampleFileError("the python fence inside the answer is not closed")
        body = body[len("```python\n") : -len("\n```")]
    return body.strip("\n") + "\n"


def read_candidate(folder: str, number: int) -> Candidate:
    path = MODULES / folder / f"candidate_{number}.md"
    try:
        reasoning, content = split_reasoning(path.read_text(encoding="utf-8"))
        return Candidate(folder, number, reasoning, content, extract_code(content))
    except SampleFileError as error:
        raise SampleFileError(f"{path}: {error}") from error
