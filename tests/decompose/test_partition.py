"""What is a kernel, a fusion, a layer, a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmill.decompose.cut.kinds import snake
from kernelmill.decompose.cut.part import Part
from kernelmill.decompose.cut.partition import partition
from kernelmill.decompose.prove.prover import Prover, prove_folder
from kernelmill.decompose.record.capture import capture

from .small import files, source

MODEL = Path(__file__).parents[2] / "data" / "models" / "sparse_transformer.py"


def cut(code: str, level: int | None = None) -> Part:
    return partition(capture(code), level)


def titles(part: Part) -> list[str]:
    return [child.title for child in part.children]


def test_every_call_is_in_exactly_one_kernel() -> None:
    code = source(
        "self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)",
        "return self.norm(x + self.fc(x).view(2, 4).relu()).t()",
        "torch.randn(2, 4)",
    )
    record = capture(code)
    found = [op.index for leaf in partition(record, None).leaves() for op in leaf.ops]
    assert sorted(found) == [op.index for op in record.root.ops()]


def test_a_level_1_problem_is_one_kernel_and_a_level_2_problem_2_to_5() -> None:
    one = source("pass", "return torch.softmax(x.exp().sum(-1) + 1, 0)", "torch.randn(2, 4)")
    assert (cut(one, 1).level, len(cut(one, 1).leaves())) == ("kernel", 1)
    two = cut(
        source(
            "self.c = nn.Conv1d(2, 2, 3)",
            "return ((((self.c(x) + 1).relu() * 2 - 3).tanh() / 4).sigmoid() + 5).exp()",
            "torch.randn(1, 2, 9)",
        ),
        2,
    )
    assert two.level == "fusion"
    assert 2 <= len(two.leaves()) <= 5


def test_convolutions_with_an_activation_between_them_are_no_attention() -> None:
    convolutions = source(
        "self.a, self.b, self.c, self.d = (nn.Conv1d(2, 2, 1) for _ in range(4))",
        "return self.d(self.c(self.b(self.a(x).relu())))",
        "torch.randn(1, 2, 9)",
    )
    assert "attention" not in titles(cut(convolutions))
    products = source(
        "self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))",
        "q, k, v = self.a(x), self.b(x), self.c(x); return ((q @ k.mT) / 2).softmax(-1) @ v",
        "torch.randn(2, 3, 4)",
    )
    assert titles(cut(products, 3)) == ["qkv", "attention"]


def test_a_loop_over_an_index_that_is_a_tensor_ends() -> None:
    lines = "\n        ".join(
        ["i = torch.arange(3)", "for _ in range(12):", "    i = (i + 1) % 3; x = x[i] + x", "return x"]
    )
    assert len(cut(source("pass", lines, "torch.randn(3, 4)")).leaves()) >= 12


def test_what_a_loop_writes_into_a_tensor_item_by_item_is_one_kernel() -> None:
    forward = """y = torch.zeros_like(x)
        for t in range(6):
            y[t] = F.relu(self.fc(x[t]))
        return y"""
    made = files(source("self.fc = nn.Linear(4, 4)", forward, "torch.randn(6, 4)"))
    written = [text for path, text in made.items() if path.startswith("level_0_kernel/index_put")]
    assert len(written) <= 2  # the first also makes what it writes into
    assert all("[index] = " in text for text in written)


def test_what_is_kept_whole_says_why() -> None:
    whole = cut(source("pass", "return x * x.max().item()", "torch.randn(2, 4)"), 3)
    assert (whole.level, whole.children) == ("kernel", [])
    assert "kept whole" in whole.why
    assert "item" in whole.why


@pytest.mark.parametrize(
    ("name", "expected"),
    [("MultiHeadAttention", "multi_head_attention"), ("MoE", "moe"), ("MoELayer", "moe_layer"), ("DINOv3ViTLayer", "dinov3_vit_layer"), ("FiLMBlock", "film_block"), ("ResNetV2Block", "res_net_v2_block"), ("GELU", "gelu"), ("RMSNorm", "rmsnorm"),
     ("SelfAttentionQKV", "self_attention_qkv"), ("ResBlockV2", "res_block_v2")],
)  # fmt: skip
def test_classes_have_the_names_that_people_give_to_files(name: str, expected: str) -> None:
    assert snake(name) == expected


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_the_bundled_model_has_10_to_50_kernels_all_proven(tmp_path: Path) -> None:
    for path, text in files(MODEL.read_text()).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    with Prover(1, 120, 4000) as prover:
        prover.start(MODEL.read_text())
        proof: Any = prove_folder(tmp_path, prover)
    metadata = json.loads((tmp_path / "decomposition_tree.json").read_text())["metadata"]
    assert proof.status == metadata["verification_status"] == "PASS"
    assert 10 <= metadata["unique_kernels"] <= 50
