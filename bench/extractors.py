"""Whether a trainer's own code finds the answer that our prompts ask for.

    python bench/extractors.py --tritonforge PATH/TO/TritonForge --kernelbench PATH/TO/KernelBench --verl PATH/TO/verl

A PATH is a checkout, or a git directory whose HEAD is read. The bundled problems are imported and exported for each trainer; a completion does what
its prompt asks: the mark is the one that the prompt names, around a kernel of the bundled rows, after reasoning, between prose, or alone. Then the
extractors of the checkouts read it: TritonForge's, which its slime plugin rewards by, KernelBench's, and verl's reward for code. Must hold: every
one gives the kernel, and so does ours. Writes extractors.json into bench/results, with the commit of each checkout.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from common import commit_of, save, text_of

from kernelmill.base.answers import code_of
from kernelmill.base.task_rules import MARKS

ROOT = Path(__file__).resolve().parents[1]
TRITONFORGE = "SLIME/slime_plugins/rollout_buffer/generator/reward_utils/kernel_utils.py"
KERNELBENCH = "src/kernelbench/utils.py"
VERL = "verl/utils/reward_score/prime_code/__init__.py"
Extractor = Callable[[str], Any]
Prompt = list[dict[str, str]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("tritonforge", "kernelbench", "verl"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    # Whose prompts each is tried on: KernelBench has no trainer, and its fences are those of slime's prompts.
    extractors: dict[str, tuple[str, Extractor]] = {
        "tritonforge": ("slime", tritonforge(given.tritonforge)),
        "kernelbench": ("slime", kernelbench(given.kernelbench)),
        "verl": ("verl", verl(given.verl)),
        "ours, slime": ("slime", code_of),
        "ours, verl": ("verl", code_of),
    }
    with tempfile.TemporaryDirectory() as folder:
        prompts = exported(Path(folder), {kind for kind, _ in extractors.values()})
    rows = (ROOT / "data/samples/evals.jsonl").read_text().splitlines()
    kernels = [kernel.strip() for kernel in dict.fromkeys(json.loads(row)["answer"] for row in rows)]
    found = {name: tried(extract, prompts[kind], kernels) for name, (kind, extract) in extractors.items()}
    sources = {
        name: {"file": file, "commit": commit_of(getattr(given, name))}
        for name, file in (("tritonforge", TRITONFORGE), ("kernelbench", KERNELBENCH), ("verl", VERL))
    }
    counts = {kind: len(rows) for kind, rows in prompts.items()}
    save("extractors", {"sources": sources, "prompts": counts, "extractors": found})
    return 0 if all(one["found"] == one["completions"] > 0 for one in found.values()) else 1


def exported(folder: Path, kinds: set[str]) -> dict[str, list[Prompt]]:
    """The prompts that `problems export` writes of the bundled problems, for each trainer."""
    mill = [sys.executable, "-m", "kernelmill", "problems"]
    problems = ROOT / "data/problems"
    subprocess.run([*mill, "import", f"mine={problems}", "--into", folder / "mine"], check=True)
    prompts: dict[str, list[Prompt]] = {}
    for kind in kinds:
        out = folder / kind
        subprocess.run([*mill, "export", folder / "mine", "--format", kind, "-o", out], check=True)
        rows: list[dict[str, Any]] = []
        for file in sorted(out.glob("*_level_*.jsonl")):
            rows += [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for file in sorted(out.glob("*.parquet")):
            rows += pq.read_table(file).to_pylist()
        prompts[kind] = [row["prompt"] for row in rows]
    return prompts


def tried(extract: Extractor, prompts: list[Prompt], kernels: list[str]) -> dict[str, Any]:
    """How many of the completions an extractor reads, each an answer to another prompt."""
    number, missed = 0, []
    for place in range(max(len(prompts), len(kernels))):
        kernel = kernels[place % len(kernels)]
        for text in completions(prompts[place % len(prompts)], kernel):
            number += 1
            got = extract(text)
            if got is None or got.strip() != kernel:
                missed.append([text[:80], str(got)[:80]])
    return {"completions": number, "found": number - len(missed), "missed": missed}


def completions(prompt: Prompt, kernel: str) -> Iterator[str]:
    """What a model writes that marks its answer as the prompt asks."""
    (mark,) = {mark for mark, words in MARKS.items() for one in prompt if words in one["content"]}
    block = f"```python\n{kernel}\n```" if mark == "fence" else f"<answer>\n{kernel}\n</answer>"
    yield block
    yield f"Here is the module.\n\n{block}\n"
    yield f"<think>\nA first try:\n```python\nx = 1\n```\nNo.\n</think>\n\n{block}\n\nEach program takes one row."


def tritonforge(checkout: Path) -> Extractor:
    last = functions(checkout, TRITONFORGE)["extract_last_code"]
    return lambda text: last(text, strip_think_tags=True)


def kernelbench(checkout: Path) -> Extractor:
    first = functions(checkout, KERNELBENCH)["extract_first_code"]
    return lambda text: first(re.sub(r"<think>.*?</think>", "", text, flags=re.S), ["python"])


def verl(checkout: Path) -> Extractor:
    """What verl's reward hands to its sandbox. The sandbox is ours, and takes note of it."""
    handed: list[str] = []

    def sandbox(in_outs: Any, generation: str, **more: Any) -> tuple[list[bool], list[dict[str, Any]]]:
        handed.append(generation)
        return [True], [{}]

    score = functions(checkout, VERL, apps_check_correctness=sandbox)["compute_score"]

    def extract(text: str) -> str:
        handed.clear()
        score(text, {"inputs": [""], "outputs": [""]})
        return handed[0]

    return extract


def functions(checkout: Path, file: str, **given: Any) -> dict[str, Any]:
    """The functions of a file, without the imports that its other parts need."""
    tree = ast.parse(text_of(checkout, file))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    space: dict[str, Any] = {"re": re, "json": json, "traceback": traceback, **given}
    exec(compile(ast.Module([*_TYPING, *tree.body], []), file, "exec"), space)
    return space


_TYPING = ast.parse(
    "from __future__ import annotations\nfrom typing import Any, Dict, List, Optional, Tuple, Union"
).body


if __name__ == "__main__":
    sys.exit(main())
