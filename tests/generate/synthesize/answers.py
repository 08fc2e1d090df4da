"""A small problem and what models answer to it, and the command against an endpoint on loopback."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kernelmill.cli import main
from tests.conftest import ROOT, read_rows

ORDER = [
    "example_id", "prompt", "completion", "task", "reward", "generation_ms", "scoring_ms", "total_ms", "info", "answer",
    "speedup_reward", "num_turns", "oai_tools",
]  # fmt: skip
"""The columns of an evals row, in their order."""
PROMPT = (ROOT / "prompts/synthesize.md").read_text(encoding="utf-8")
_FOUND = re.search(r"```python\n(.*?)```", PROMPT, re.DOTALL)
_ANSWER = re.search(r"A good answer:\n\n(.*?</answer>)", PROMPT, re.DOTALL)
assert _FOUND is not None
assert _ANSWER is not None
REFERENCE = _FOUND[1]
"""The problem of the prompt's own example."""
GOOD = _ANSWER[1]
WRONG = GOOD.replace("x * weight + shift", "x * weight - shift")
EMPTY = "<answer>\nimport torch\n</answer>"
"""Code, but no candidate: judged in no time."""
PROSE = "I would write a fused kernel here, but I would rather talk about it."


def problem(folder: Path, *names: str) -> Path:
    """A folder with the small problem, once for each name."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(names or ("ScaledShift",), 1):
        (folder / f"{number}_{name}.py").write_text(f'"""{name}"""\n{REFERENCE}', encoding="utf-8")
    return folder


def synthesize(url: str, *more: object, output: str = "out.jsonl") -> int:
    words = ["synthesize", "--problems", "problems", "-o", output, "--base-url", url, "--model", "fake"]
    return main([*words, "--device", "cpu", *map(str, more)])


def rows(name: str = "out.jsonl") -> list[dict[str, Any]]:
    return read_rows(Path(name))


def asked(body: dict[str, Any]) -> str:
    text: str = body["messages"][-1]["content"]
    return text


def manifest(name: str = "out.manifest.json") -> dict[str, Any]:
    made: dict[str, Any] = json.loads(Path(name).read_text(encoding="utf-8"))
    return made
