"""A set of RL prompts made here, in the documented format, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kernelmill.problems.sets.levels import COUNTS, level_file

REFERENCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Problem {number} of level {level}: größer, 更快."""

    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return self.linear(x) * {number} + {level}


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [8]
'''


def rl_row(level: int, number: int, name: str | None = None) -> dict[str, Any]:
    label = REFERENCE.format(level=level, number=number)
    return {
        "prompt": [
            {"role": "system", "content": "You write Triton kernels."},
            {"role": "user", "content": f"Write this as a kernel:\n\n{label}"},
        ],
        "label": label,
        "extra_info": {
            "level": level,
            "problem_id": str(number),
            "problem_name": name or f"Problem{level}_{number}_é",
            "data_source": "kernel_bench_triton",
            "task_type": "kernelbench",
        },
        "instance_id": f"kernel_bench_triton_lv{level}_{number}",
    }


def line(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False).encode()


def write_levels(folder: Path, counts: dict[int, int] | None = None) -> list[dict[str, Any]]:
    """Level files as others write them; two problems share a name where there are enough of them."""
    rows = []
    for level, count in (counts or COUNTS).items():
        shared = {(2, 33): "Gemm_Scale", (2, 39): "Gemm_Scale"}
        # Not in order of the ids, as a file system may give them.
        numbers = sorted(range(1, count + 1), key=str)
        mine = [rl_row(level, number, shared.get((level, number))) for number in numbers]
        level_file(folder, level).write_bytes(b"".join(line(row) + b"\n" for row in mine))
        rows += mine
    return rows
