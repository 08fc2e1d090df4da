"""Token lengths of rows of 28 kB: `kernelmill lengths` beside `apply_chat_template` + `encode`, row by row.

Must hold: at least 10 times as fast, and the same count for every row. Both sides use the same files, a tokenizer folder made from the
embedded Qwen vocabulary, and the same rows: Python source of the packages that are installed here, none of it twice. Of ours the
time is that of the whole command, start and loading included; of theirs it is that of the loop alone. `transformers` comes from
a virtual environment that is made for the run. Each side is measured in turn, twice, and its better time counts.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from common import Measured, measured, save

from kernelmill.store import open_source
from kernelmill.testing.example_rows import evals_row
from kernelmill.testing.qwen_tokenizer import write_tokenizer
from kernelmill.tokens.chat_rows import ChatReader
from kernelmill.tokens.chat_tokens import load_tokenizer
from kernelmill.tokens.tokenizer_files import find_tokenizer

ROWS, ROW_BYTES, PROMPT_BYTES, ROUNDS = 3_000, 28_000, 6_000, 2

THEIRS = """
import json, sys, time
import transformers
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
rows = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
started, cpu = time.perf_counter(), time.process_time()
counts = []
for row in rows:
    messages = row["prompt"] + row["completion"]
    for message in messages:
        if "reasoning" in message:
            message["reasoning_content"] = message["reasoning"]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    counts.append(len(tokenizer.encode(text, add_special_tokens=False)))
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
print(json.dumps({"seconds": seconds, "cpu": cpu, "counts": counts, "transformers": transformers.__version__}))
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        python = _environment(folder / "venv")
        tokenizer = write_tokenizer(folder / "tokenizer")
        rows = folder / "rows.jsonl"
        with rows.open("w", encoding="utf-8") as file:
            for number, text in enumerate(islice(_texts(), ROWS)):
                file.write(json.dumps(_row(number, text)) + "\n")
        assert number == ROWS - 1, "too few packages are installed"
        ways = {"tokenizer_folder": str(tokenizer), "qwen_embedded": "qwen-embedded"}
        theirs: dict[str, Any] = {"seconds": math.inf}
        ours: dict[str, Measured] = {}
        for _ in range(ROUNDS):
            done = measured([python, "-c", THEIRS, str(tokenizer), str(rows)])
            theirs = min(theirs, json.loads(done.stdout.splitlines()[-1]), key=lambda took: took["seconds"])
            for way, name in ways.items():
                line = [sys.executable, "-m", "kernelmill", "lengths", str(rows), "--tokenizer", name]
                ours[way] = min(
                    ours.get(way, done), measured(line, cwd=folder), key=lambda took: took.seconds
                )
        line = [sys.executable, "-m", "kernelmill", "lengths", str(rows), "--tokenizer", "qwen-embedded"]
        alone = measured(line, cwd=folder, preexec_fn=_on_one_core)
        equal = all(_counts(rows, name) == theirs["counts"] for name in ways.values())
        result: dict[str, Any] = {
            "rows": ROWS,
            "row_bytes": round(rows.stat().st_size / ROWS),
            "tokens": sum(theirs["counts"]),
            "rounds": ROUNDS,
            "same_counts": equal,
            "apply_chat_template_and_encode": {
                "seconds": round(theirs["seconds"], 2),
                "ms_a_row": round(theirs["seconds"] / ROWS * 1000, 2),
                "cpu_seconds": round(theirs["cpu"], 2),
                "transformers": theirs["transformers"],
                "tokenizers": version("tokenizers"),
            },
        }
        for way, took in ours.items():
            result[way] = {
                "seconds": round(took.seconds, 2),
                "ms_a_row": round(took.seconds / ROWS * 1000, 2),
                "times_as_fast": round(theirs["seconds"] / took.seconds, 1),
                "peak_mb": round(took.peak_mb),
            }
        result["qwen_embedded_on_one_core"] = {
            "cpu_seconds": round(alone.cpu, 2),
            "times_less_cpu": round(theirs["cpu"] / alone.cpu, 1),
            "peak_mb": round(alone.peak_mb),
        }
    save("lengths", result)
    if not equal or any(result[way]["times_as_fast"] < 10 for way in ways):
        sys.exit("NOT MET: the same counts, 10 times as fast")


def _on_one_core() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _environment(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    line = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "transformers>=5",
        "jinja2",
    ]
    subprocess.run([*line, f"tokenizers=={version('tokenizers')}"], check=True, capture_output=True)
    return python


def _texts() -> Iterator[str]:
    """Pieces of source code, in the order of the files' names."""
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        for start in range(0, len(text) - ROW_BYTES + 1, ROW_BYTES):
            yield text[start : start + ROW_BYTES]


def _row(number: int, text: str) -> dict[str, object]:
    """A prompt, thoughts, and an answer."""
    middle = (PROMPT_BYTES + ROW_BYTES) // 2
    message = {
        "role": "assistant",
        "content": f"<answer>{text[middle:]}</answer>",
        "reasoning": text[PROMPT_BYTES:middle],
    }
    prompt = [{"role": "user", "content": text[:PROMPT_BYTES]}]
    return evals_row(number, prompt=prompt, completion=[message])


def _counts(rows: Path, name: str) -> list[int]:
    tokenizer, read = load_tokenizer(find_tokenizer(name)), ChatReader("count")
    chats = map(read, open_source(str(rows)).rows())
    return [tokenizer.tokens.measure(tokenizer.render(chat.messages))[0] for chat in chats]


if __name__ == "__main__":
    main()
