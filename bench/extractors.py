"""Whether a trainer's own code finds the answer that our prompts ask for.

    python bench/extractors.py --tritonforge PATH/TO/TritonForge --kernelbench PATH/TO/KernelBench

Each kernel of the bundled rows is put into completions as `task_rules` has the prompts ask for them: after reasoning, between prose, alone. Then the
extractors of the checkouts read them: TritonForge's, which its slime plugin rewards by, and KernelBench's. Must hold: every one gives the
kernel, and so does ours. Writes extractors.json into bench/results.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from common import save

from kernelmill.answers import code_of
from kernelmill.problem_sets.export import ANSWERS
from kernelmill.task_rules import MARKS

ROOT = Path(__file__).resolve().parents[1]
Extractor = Callable[[str], Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tritonforge", type=Path, required=True)
    parser.add_argument("--kernelbench", type=Path, required=True)
    given = parser.parse_args()
    assert ANSWERS["slime"] == "fence"
    assert "```python" in MARKS["fence"]
    utils = "SLIME/slime_plugins/rollout_buffer/generator/reward_utils/kernel_utils.py"
    last = functions(given.tritonforge / utils)["extract_last_code"]
    first = functions(given.kernelbench / "src/kernelbench/utils.py")["extract_first_code"]
    extractors: dict[str, Extractor] = {
        "tritonforge": lambda text: last(text, strip_think_tags=True),
        "kernelbench": lambda text: first(re.sub(r"<think>.*?</think>", "", text, flags=re.S), ["python"]),
        "ours": code_of,
    }
    rows = (ROOT / "data/samples/evals.jsonl").read_text().splitlines()
    kernels = list(dict.fromkeys(json.loads(row)["answer"] for row in rows))
    found = {name: {"completions": 0, "found": 0, "missed": []} for name in extractors}  # type: dict[str, dict[str, Any]]
    for kernel in kernels:
        for text in completions(kernel.strip()):
            for name, extract in extractors.items():
                found[name]["completions"] += 1
                if (got := extract(text)) is not None and got.strip() == kernel.strip():
                    found[name]["found"] += 1
                else:
                    found[name]["missed"].append([text[:80], str(got)[:80]])
    save("extractors", {"extractors": found})
    return 0 if all(one["found"] == one["completions"] > 0 for one in found.values()) else 1


def completions(kernel: str) -> Iterator[str]:
    block = f"```python\n{kernel}\n```"
    yield block
    yield f"Here is the module.\n\n{block}\n"
    yield f"<think>\nA first try:\n```python\nx = 1\n```\nNo.\n</think>\n\n{block}\n\nEach program takes one row."


def functions(path: Path) -> dict[str, Any]:
    """The functions of a file, without the imports that its other parts need."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    space: dict[str, Any] = {"re": re}
    exec(compile(ast.Module([*_TYPING, *tree.body], []), str(path), "exec"), space)
    return space


_TYPING = ast.parse(
    "from __future__ import annotations\nfrom typing import Any, Dict, List, Optional, Tuple, Union"
).body


if __name__ == "__main__":
    sys.exit(main())
