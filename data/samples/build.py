"""Join modules, candidates and measurements into evals.jsonl.

    python data/samples/build.py

Reads `measured.json`, which bench/measure_samples.py writes on a GPU. The rewards are those measurements and
nothing else: without the file, or when it does not fit the sources that stand here now, nothing is written.
The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import sample_files

from kernelmill.errors import MillError, SourceError

STATUSES = ("correct", "incorrect", "compile_error", "crash", "timeout")
MEASURE = "run `python3 bench/measure_samples.py --device cuda --out data/samples/measured.json` on a GPU"

SYSTEM = (
    "You write GPU kernels in Triton. You are given a PyTorch module and answer with a module that computes "
    "the same result with Triton kernels, faster if you can. Think first. Then give the complete code, and "
    "only the code, between <answer> and </answer>."
)
USER = """Write a Triton version of this PyTorch module.

```python
{source}
```

Name the new class `{name}New`. It must take the same constructor arguments as `{name}`, hold parameters of the same names and shapes, so that the original's state_dict loads, and return the same values as `{name}` for the inputs of `get_inputs()`. Do the work in `@triton.jit` kernels. The code must be complete: imports, kernels and the class."""


def read_measured(path: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """The measured rows by (module, candidate), each checked against the sources as they stand now."""
    if not path.is_file():
        raise SourceError(f"{path} does not exist, and rewards are only ever measured: {MEASURE}")
    rows = {
        (row["module"], row["candidate"]): row for row in json.loads(path.read_text(encoding="utf-8"))["rows"]
    }
    for folder in sample_files.folders():
        source = sample_files.read_reference(folder).source
        for number in sample_files.CANDIDATES:
            row = rows.get((folder, number))
            where = f"{folder} candidate {number}"
            if row is None:
                raise SourceError(f"{path} has no row for {where}: {MEASURE}")
            code = sample_files.read_candidate(folder, number).code
            if (row["module_sha256"], row["code_sha256"]) != (
                sample_files.sha256(source),
                sample_files.sha256(code),
            ):
                raise SourceError(f"{path}: {where} was changed after it was measured: {MEASURE}")
            if row["status"] not in STATUSES:
                raise SourceError(f"{path}: {where} has the unknown status {row['status']!r}")
            if row["status"] == "correct" and row["speedup"] is None:
                raise SourceError(f"{path}: {where} was checked but not timed: {MEASURE}")
    return rows


def build_rows(measured: dict[tuple[str, int], dict[str, Any]]) -> list[dict[str, Any]]:
    """The evals rows, in the order of the folders, with the keys in the order of the format."""
    built: list[dict[str, Any]] = []
    for folder in sample_files.folders():
        reference = sample_files.read_reference(folder)
        first = sample_files.read_candidate(folder, 1)
        user = USER.format(source=reference.source.strip("\n"), name=reference.class_name)
        for number in sample_files.CANDIDATES:
            candidate = sample_files.read_candidate(folder, number)
            row = measured[folder, number]
            reward = float(row["speedup"]) if row["status"] == "correct" else 0.0
            message = {"role": "assistant", "content": candidate.content}
            if candidate.reasoning is not None:
                message["reasoning"] = candidate.reasoning
            built.append(
                {
                    "example_id": len(built),
                    "prompt": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}],
                    "completion": [message],
                    "task": "kernelbook",
                    "reward": reward,
                    "generation_ms": 0.0,
                    "scoring_ms": float(row["scoring_ms"]),
                    "total_ms": float(row["scoring_ms"]),
                    "info": {
                        "module_name": reference.class_name,
                        "python_code": reference.source,
                        "triton_code": first.code,
                    },
                    "answer": candidate.code,
                    "speedup_reward": reward,
                    "num_turns": 1.0,
                    "oai_tools": None,
                }
            )
    return built


def render(measured_path: Path) -> str:
    """The text of evals.jsonl for one measured.json."""
    rows = build_rows(read_measured(measured_path))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measured", type=Path, default=sample_files.HERE / "measured.json")
    parser.add_argument("--out", type=Path, default=sample_files.HERE / "evals.jsonl")
    options = parser.parse_args(arguments)
    try:
        text = render(options.measured)
    except MillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    temporary = options.out.with_name(options.out.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(options.out)
    print(f"{options.out}: {text.count(chr(10))} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
