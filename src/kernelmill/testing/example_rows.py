"""Valid evals rows for tests and benchmarks: each with its own module, of any size."""

from __future__ import annotations

from typing import Any

MODULE = '''import torch
import torch.nn as nn


class Scale{n}(nn.Module):
    """{about}"""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor + {n}


def get_inputs():
    return [torch.rand([4, 4])]


def get_init_inputs():
    return [[], {{'factor': 2.0}}]
'''


def evals_row(
    n: int, reward: float | None = 1.0, code_bytes: int = 0, answer_bytes: int = 0, **more: Any
) -> dict[str, Any]:
    """Build an evals row, in schema order. `n` makes its module unique; the sizes are minimums."""
    code = MODULE.format(n=n, about="Scales and shifts. " * max(1, code_bytes // 19))
    thoughts = "First, consider the shapes. " * (answer_bytes // 28)
    return {
        "example_id": n,
        "prompt": [{"role": "user", "content": f"Write Scale{n} in Triton."}],
        "completion": [{"role": "assistant", "content": f"{thoughts}<answer>kernel {n}</answer>"}],
        "task": "kernelbook",
        "reward": reward,
        "generation_ms": 1.5,
        "scoring_ms": 2.0,
        "total_ms": 3.5,
        "info": {"module_name": f"Scale{n}", "python_code": code, "triton_code": "kernel"},
        "answer": "kernel",
        "speedup_reward": reward,
        "num_turns": 1.0,
        "oai_tools": None,
        **more,
    }
