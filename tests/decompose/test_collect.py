"""Decomposed models as one set of problems."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.decompose.collect import key_of
from kernelmill.decompose.model_folder import write_model
from kernelmill.decompose.prove.prover import Prover, prove_folder
from tests.decompose.models import KERNEL, node, tree, written
from tests.decompose.small import files, source
from tests.decompose.trees import write

Mill = Callable[..., subprocess.CompletedProcess[str]]
RELU = KERNEL.replace("gelu", "relu")
LARGER = KERNEL.replace("torch.randn(4, 6)", "torch.randn(8, 6)")


def model(place: str, *parts: tuple[str, str, str, int], **metadata: Any) -> Path:
    """A result with parts as (name, level, code, how often)."""
    root = node(parts[0][0], parts[0][1], tuple(name for name, *_ in parts[1:]), parts[0][3])
    nodes = [root, *(node(name, level, (), times) for name, level, _, times in parts[1:])]
    files = {one["path"]: code for one, (_, _, code, _) in zip(nodes, parts, strict=True)}
    return written(
        Path("out") / place, files | {"decomposition_tree.json": json.dumps(tree(*nodes, **metadata))}
    )


def collected() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("problems/collected.json").read_text())["problems"]
    return found


def test_the_same_work_in_several_models_is_one_problem_with_all_its_instances(mill: Mill) -> None:
    other = '"""Another header."""\n' + KERNEL + "\n\ndef run_tests():\n    print(1)\n"
    model(
        "level3/1_a",
        ("fused", "fusion", RELU, 1),
        ("gelu_fp32", "kernel", KERNEL, 2),
        ("gelu_fp32_v2", "kernel", LARGER, 9),
    )
    model("level3/2_b", ("gelu_fp32", "kernel", other, 3))
    done = mill("collect", "out")
    assert done.returncode == 0, done.stderr
    assert "kernels     2 different, 14 in all" in done.stdout
    assert [(one["file"], one["instance_count"], one["models"]) for one in collected()] == [
        ("level1/1_gelu_fp32.py", 9, {"level3/1_a": 9}),
        ("level1/2_gelu_fp32_v2.py", 5, {"level3/1_a": 2, "level3/2_b": 3}),
        ("level2/1_fused.py", 1, {"level3/1_a": 1}),
    ]
    assert Path("problems/level1/2_gelu_fp32_v2.py").read_text() == KERNEL
    assert Path("problems/level1/1_gelu_fp32.py").read_text() == LARGER


def test_only_proven_models_are_taken_and_the_others_are_named(mill: Mill) -> None:
    model("level1/1_good", ("gelu", "kernel", KERNEL, 1))
    model("level1/2_bad", ("relu", "kernel", RELU, 1), verification_status="FAIL")
    model("level1/3_lost", ("relu", "kernel", RELU, 1))
    Path("out/level1/3_lost/level_0_kernel/relu.py").unlink()
    model("level1/.4_killed.tmp", ("relu", "kernel", RELU, 1))
    done = mill("collect", "out")
    assert "left out: out/level1/2_bad: its proof is FAIL" in done.stdout
    assert "left out: out/level1/3_lost: " in done.stdout
    assert [one["name"] for one in collected()] == ["gelu"]


def test_levels_are_those_asked_for(mill: Mill) -> None:
    model(
        "level3/1_a", ("net", "model", RELU, 1), ("block", "layer", LARGER, 2), ("gelu", "kernel", KERNEL, 2)
    )
    assert mill("collect", "out", "--levels", "layer,model").returncode == 0
    assert [one["file"] for one in collected()] == ["level3/1_block.py", "level4/1_net.py"]


def test_a_level_whose_files_were_not_kept_is_no_fault_and_told(mill: Mill) -> None:
    folder = model("level3/1_a", ("f", "fusion", RELU, 1), ("gelu", "kernel", KERNEL, 2), levels=["kernel"])
    (folder / "level_1_fusion/f.py").unlink()
    done = mill("collect", "out")
    assert done.returncode == 0
    assert "fusions     0 different, 0 in all; not written for 1 of the models" in done.stdout
    assert "kernels     1 different, 2 in all\n" in done.stdout
    assert [one["name"] for one in collected()] == ["gelu"]
    done = mill("collect", "out", "--levels", "fusion", "-o", "more")
    assert done.returncode == 1
    assert "no problem to collect; decompose wrote no files of: fusion (its --levels)" in done.stderr


def test_a_set_is_replaced_whole_and_a_foreign_folder_is_left_alone(mill: Mill) -> None:
    model("level1/1_a", ("gelu", "kernel", KERNEL, 1))
    assert mill("collect", "out").returncode == 0
    written(Path("problems"), {"level1/9_old.py": ""})
    assert mill("collect", "out").returncode == 0
    assert [path.name for path in Path("problems/level1").iterdir()] == ["1_gelu.py"]
    Path("problems/collected.json").unlink()
    done = mill("collect", "out")
    assert done.returncode == 1
    assert "was not made by collect" in done.stderr
    assert Path("problems/level1/1_gelu.py").exists()


@pytest.mark.parametrize(
    "path", ["../../secret.py", "level_0_kernel/../../../secret.py", "level_1_fusion/gelu.py"]
)
def test_a_tree_cannot_name_files_elsewhere(mill: Mill, path: str) -> None:
    folder = model("level1/1_a", ("gelu", "kernel", KERNEL, 1))
    file = folder / "decomposition_tree.json"
    found = json.loads(file.read_text())
    found["nodes"]["gelu"]["path"] = path
    file.write_text(json.dumps(found))
    written(folder, {path: KERNEL})
    done = mill("collect", "out")
    assert done.returncode == 1
    assert "is not in the folder of a kernel" in done.stderr


def test_nothing_to_collect_is_told(mill: Mill) -> None:
    model("level1/1_a", ("gelu", "kernel", KERNEL, 1), verification_status="NOT_RUN")
    done = mill("collect", "out")
    assert done.returncode == 1
    assert "no problem to collect; the first: out/level1/1_a: its proof is NOT_RUN" in done.stderr
    assert not Path("problems").exists()


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("decomposition_tree.json", "{", "decomposition_tree.json is not valid JSON: "),
        ("decomposition_tree.json", "[" * 100_000, "decomposition_tree.json is not valid JSON: "),
        ("decomposition_tree.json", "[]", "decomposition_tree.json is not a valid tree: "),
        ("level_0_kernel/gelu.py", None, "level_0_kernel/gelu.py cannot be read (No such file or directory)"),
        ("level_0_kernel/gelu.py", "def (", "is not valid Python: "),
    ],
)
def test_a_model_that_cannot_be_read_is_left_out_with_a_line(
    mill: Mill, file: str, text: str | None, said: str
) -> None:
    model("level1/1_a", ("gelu", "kernel", KERNEL, 1))
    broken = model("level1/2_b", ("gelu", "kernel", KERNEL, 1)) / file
    broken.unlink() if text is None else broken.write_text(text)
    done = mill("collect", "out")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("left out: ")]
    assert said in line


def test_a_collected_set_is_imported_as_it_is(mill: Mill) -> None:
    model("level1/1_a", ("gelu_fp32", "kernel", KERNEL, 1))
    assert mill("collect", "out").returncode == 0
    done = mill("problems", "import", "problems")
    assert done.returncode == 0, done.stderr
    assert Path("data/problems/level1/1_gelu_fp32.py").read_text() == KERNEL


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters='\\"\0\r'), max_size=30))
def test_docstrings_and_comments_are_no_part_of_the_work(text: str) -> None:
    flat = text.replace("\n", " ").replace("\f", " ")
    documented = f'"""{text}"""\n# {"".join(flat.split())}\n{KERNEL}'.replace(
        "(nn.Module):", f'(nn.Module):\n    """{text}"""\n'
    )
    assert key_of(documented) == key_of(KERNEL)


@pytest.mark.parametrize(
    ("old", "new"),
    [("gelu", "relu"), ("(4, 6)", "(4, 7)"), ("return []", "return [1]"), ("randn", "rand"), ("import torch.nn as nn", "from torch import nn")],
)  # fmt: skip
def test_code_that_differs_is_other_work(old: str, new: str) -> None:
    assert key_of(KERNEL.replace(old, new)) != key_of(KERNEL)


def test_parts_of_a_model_are_taken_where_proven_steps_lead_to_them(mill: Mill, tmp_path: Path) -> None:
    """One step that does not hold is no reason to lose all other parts of a large model."""
    init = "self.a, self.b = Half(0.1), Half(0.2); self.c = nn.Linear(8, 8)"
    before = """class Half(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope, self.fc, self.norm = slope, nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        y = F.leaky_relu(self.fc(x), self.slope)
        return self.norm(y @ y.transpose(0, 1) @ x) if self.slope < 0.15 else torch.cumsum(torch.softmax(y, -1), 0)
"""
    code = source(init, "return self.c(self.b(self.a(x)))", "torch.rand(4, 8)", before)
    folder = Path("out/level3/1_net")
    write_model(folder, files(code, 3), code)
    tree = json.loads((folder / "decomposition_tree.json").read_text())["nodes"]
    bad = next(
        node
        for node in tree.values()
        if "cumsum" in str(node["children"]) and node["step"] and node["id"] != "tiny"
    )
    only = {name for name in bad["children"] if "cumsum" in name}
    write(folder / bad["step"] / "weight_map.json", '{"refactored_to_original": {}}')
    write(folder / "verification/weight_map.json", '{"refactored_to_original": {}}')
    with Prover(workers=2, timeout=20, memory_mb=2048) as prover:
        assert prove_folder(folder, prover).status == "FAIL"
    done = mill("collect", "out", "--levels", "kernel,fusion,layer")
    assert done.returncode == 0, done.stderr
    assert "in part: out/level3/1_net: its proof is FAIL, " in done.stdout
    taken = {one["name"] for one in collected()}
    assert bad["id"] in taken, "the step above has it"
    assert any("layernorm" in name for name in taken), "a part beside it"
    assert only
    assert not only & taken, "only the step that fails has it"
