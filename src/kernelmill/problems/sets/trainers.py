"""Trainers: the row format of each, and the function that its config names as the reward.

    slime       kernel_bench_triton_level_N.jsonl, and merged (`rl_rows`): prompt, label, extra_info,
                instance_id
    trl         kernel_bench_triton_trl.jsonl: prompt as messages; the other columns go to the reward function
    verl        kernel_bench_triton_verl.parquet: data_source, prompt, ability, reward_model, extra_info
    prime,      kernel_bench_triton_prime.jsonl …: example_id, prompt, answer, info, task, as environments of
    verifiers   `verifiers` load them, which prime-rl trains with

`benchmark: true` of a row comes last in every format.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kernelmill.base.task_rules import Mark
from kernelmill.settings.registry import Registry

Row = dict[str, Any]


def lines(rows: Sequence[Row]) -> bytes:
    """Rows as JSON lines."""
    # A lone surrogate cannot be encoded as UTF-8; a problem with one was never imported.
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def parquet(rows: Sequence[Row]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink, compression="zstd")
    return sink.getvalue()


class Trainer(NamedTuple):
    what: str
    reward: str
    """`module:name` of what the trainer is told to call; docs/rl.md says how."""
    answer: Mark
    """How the trainer's own code finds the answer in a completion."""
    rows: Callable[[Sequence[Row]], Iterable[Row]] | None = None
    """From rows in slime's format (`rl_rows`) to its own; None for slime's, which are written by level."""
    encode: Callable[[Sequence[Row]], bytes] = lines
    suffix: str = "jsonl"


def _trl(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        yield {
            "prompt": row["prompt"],
            "label": row["label"],
            **row["extra_info"],
            "instance_id": row["instance_id"],
            **_last(row),
        }


def _verl(rows: Sequence[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        extra = row["extra_info"]
        yield {
            "data_source": extra["data_source"],
            "prompt": row["prompt"],
            "ability": "kernel",
            "reward_model": {"style": "rule", "ground_truth": row["label"]},
            "extra_info": {"split": "train", "index": number, **extra, "instance_id": row["instance_id"]},
            **_last(row),
        }


def _verifiers(rows: Sequence[Row]) -> Iterator[Row]:
    for number, row in enumerate(rows):
        extra = row["extra_info"]
        yield {
            "example_id": number,
            "prompt": row["prompt"],
            "answer": row["label"],
            "info": {**extra, "instance_id": row["instance_id"]},
            "task": extra["data_source"],
            **_last(row),
        }


def _last(row: Row) -> Row:
    return {"benchmark": True} if row.get("benchmark") else {}


TRAINERS = Registry(
    "trainer",
    "kernelmill.trainers",
    Trainer,
    {
        # TritonForge's reward for slime takes the last code block.
        "slime": Trainer("slime", "kernelmill.rl.slime:reward", "fence"),
        # TRL has no parser: ours is used, which reads both marks.
        "trl": Trainer("TRL's GRPOTrainer", "kernelmill.rl.trl:reward", "answer", _trl),
        # verl's reward for code takes the last block that begins with ```python.
        "verl": Trainer("verl", "kernelmill.rl.verl:compute_score", "fence", _verl, parquet, "parquet"),
        # The XMLParser of verifiers, and so prime-rl, takes the content of <answer>.
        "prime": Trainer("prime-rl", "kernelmill.rl.taskset:KernelTaskset", "answer", _verifiers),
        "verifiers": Trainer("verifiers", "kernelmill.rl.verifiers:load_environment", "answer", _verifiers),
    },
)
