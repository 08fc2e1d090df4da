"""Models whose weights do not fit: large weights of one shape are parts of one block, and a mistake still shows."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelmill.decompose.prove.build import ORIGINAL, Original, block_of, build_for_numbers, bytes_in_blocks
from kernelmill.decompose.prove.sizes import NUMBER, Cost, Rule, choose, narrowed
from kernelmill.decompose.prove.values import State
from kernelmill.problems.module_file import forget
from tests.decompose.models import written

Mill = Callable[..., subprocess.CompletedProcess[str]]

DEEP = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2048, 2048) for _ in range(66)])

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x


def get_inputs():
    return [torch.randn(2, 2048)]


def get_init_inputs():
    return []
"""
FEW = DEEP.replace("2048", "1024").replace("66", "3")


def test_weights_in_a_block_share_memory_and_no_two_have_the_same_numbers() -> None:
    model = build_for_numbers(Original(FEW, None), in_blocks=True)
    forget(ORIGINAL)
    weights = [layer.weight.detach() for layer in model.layers]
    with torch.no_grad():
        State(model).draw(1, False)
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    assert block_of(weights[0]).numel() < 1.5 * weights[0].numel()
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (weights[one] == weights[other]).float().mean() < 0.01
    assert 0.5 < float(weights[2].std() / nn.Linear(1024, 1024).weight.detach().std()) < 2
    assert bytes_in_blocks(list(model.parameters())) < 6 << 20


def test_a_size_that_is_given_is_made_smaller_with_the_rows_that_it_counts() -> None:
    def estimate(rules: list[Rule]) -> Cost | None:
        rows, batch = narrowed([torch.empty(4096, 1, device="meta"), 512], rules)
        return Cost(rows.numel() * 100_000, 0, 0, 0, 0) if len(rows) == batch * 8 else None

    rules, cost = choose(Cost(409_600_000, 0, 0, 0, 0), [(4096, 1)], [512], estimate)
    assert rules[0].dimension == NUMBER
    assert cost.over() <= 1
    assert narrowed([torch.empty(4096, 1), 512, True], rules)[1:] == [rules[0].new, True]


@pytest.mark.heavy
def test_two_weights_that_are_swapped_show_in_a_model_that_is_proven_in_blocks(
    tmp_path: Path, mill: Mill
) -> None:
    written(tmp_path, {"deep.py": DEEP})
    done = mill("decompose", tmp_path / "deep.py", "-o", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    verification = tmp_path / "out/models/deep/verification"
    numbers = json.loads((verification / "test_results.json").read_text())["numerical_comparison"]
    assert "one block" in numbers["weights"]
    weight_map = json.loads((verification / "weight_map.json").read_text())
    names = {source: name for name, source in weight_map["refactored_to_original"].items()}
    for mine, others in (("layers.3.weight", "layers.40.weight"), ("layers.40.weight", "layers.3.weight")):
        weight_map["refactored_to_original"][names[mine]] = others
    (verification / "weight_map.json").write_text(json.dumps(weight_map))
    again = mill("prove", tmp_path / "out")
    assert again.returncode == 1
    assert "FAIL deep: composition: eval mode" in again.stdout
