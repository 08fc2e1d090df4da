"""Models beyond single files: classes that are imported, modules beside a file, models of transformers by their configuration."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.cli import main
from kernelmill.decompose.errors import BadSource, CannotRecord
from kernelmill.decompose.model_folder import read_tree
from kernelmill.decompose.sources.hf import hf_source
from kernelmill.decompose.sources.importable import constructor, keyword, module_source, parsed_inputs
from kernelmill.decompose.sources.local_imports import local_modules, with_local_modules
from kernelmill.decompose.worker import decomposed as decomposed_files
from kernelmill.decompose.write.tree_file import TreeFile
from kernelmill.errors import SourceError
from tests.decompose.models import written

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="needs transformers"
)
Mill = Callable[..., subprocess.CompletedProcess[str]]

PARTS = """import torch


def gate(x):
    a, b = x.chunk(2, -1)
    return a * torch.sigmoid(b)
"""
LAYERS = '''"""Blocks."""

import torch.nn as nn

from nets.parts import gate


class Block(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x, mask=None):
        y = gate(self.up(self.norm(x)))
        if mask is not None:
            y = y.masked_fill(mask.all(-1)[None, :, None], 0.0)
        return x + y
'''
MODEL = """from __future__ import annotations

import torch
import torch.nn as nn

from layers import Block


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(16) for _ in range(2)])

    def forward(self, x: NowhereDefined):
        for block in self.blocks:
            x = block(x)
        return x


def get_inputs():
    return [torch.randn(2, 4, 16)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = written(tmp_path, {"layers.py": LAYERS, "nets/parts.py": PARTS, "model.py": MODEL})
    monkeypatch.chdir(made)
    return made


def emitted(model: Path) -> list[Path]:
    return list(model.glob("level_*/*.py"))


@pytest.mark.heavy
def test_a_file_that_imports_its_neighbours_is_proven_and_its_parts_need_only_torch(
    folder: Path, mill: Mill
) -> None:
    done = mill("decompose", folder / "model.py", "-o", folder / "out", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    model = folder / "out/models/model"
    for file in emitted(model):
        text = file.read_text()
        assert "layers" not in text.replace("layernorm", ""), file
        assert "_LOCAL" not in text, file
    # The neighbours are gone: the proof is of the folder alone.
    (folder / "layers.py").unlink()
    again = mill("prove", folder / "out")
    assert again.returncode == 0, again.stdout + again.stderr


def test_a_class_is_decomposed_with_sizes_that_are_recorded(folder: Path) -> None:
    inputs = "x=float32[batch,seq,16], mask=bool[seq,seq]"
    arguments = ["--module", "layers:Block", "--init", "(16, heads=4)", "--inputs", inputs]
    assert main(["decompose", *arguments, "-o", "out", "--workers", "1"]) == 0
    tree, _ = read_tree(folder / "out/models/Block")
    assert tree.metadata.verification_status == "PASS"
    assert tree.metadata.assumptions == ["batch = 2", "seq = 32"]
    root = tree.nodes[str(tree.metadata.root)]
    assert root.input_shapes == [[2, 32, 16], [32, 32]]


def test_a_class_whose_inputs_are_bfloat16_is_bfloat16_everywhere(folder: Path) -> None:
    arguments = ["--module", "layers:Block", "--init", "16", "--inputs", "bf16[batch,seq,16]"]
    assert main(["decompose", *arguments, "-o", "out", "--workers", "1"]) == 0
    tree, _ = read_tree(folder / "out/models/Block")
    assert "weights are bfloat16, as the inputs are" in tree.metadata.assumptions
    assert {dtype for node in tree.nodes.values() for dtype in node.output_dtypes} <= {"bfloat16", "bf16"}


def test_the_graph_has_every_call_with_its_place(folder: Path) -> None:
    assert main(["decompose", "model.py", "--graph", "graph.json"]) == 0
    graph = json.loads((folder / "graph.json").read_text())
    assert set(graph) >= {"source", "inputs", "output", "weights", "modules", "calls"}
    assert graph["inputs"] == {"x": "float32[2,4,16]"}
    assert graph["modules"]["blocks.1"] == "Block"
    linear = [call for call in graph["calls"] if call["call"].startswith("torch.nn.Linear(")]
    assert [call["layer"]["path"] for call in linear] == ["blocks.0.up", "blocks.1.up"]
    assert [call["scope"] for call in linear] == ["blocks.0", "blocks.1"]
    assert graph["output"] == graph["calls"][-1]["id"]
    assert not (folder / "output").exists()


def decomposed(kind: str, sizes: dict[str, int]) -> TreeFile:
    """A small model of transformers, proven."""
    sets = [word for key, value in sizes.items() for word in ("--set", f"{key}={value}")]
    assert main(["decompose", "--hf-config", kind, *sets, "-o", "out", "--workers", "2"]) == 0
    tree, _ = read_tree(Path(f"out/models/{kind}"))
    assert tree.metadata.verification_status == "PASS"
    assert any(node.instance_count == 2 and node.level == "layer" for node in tree.nodes.values())
    return tree


@pytest.mark.heavy
@needs_transformers
@pytest.mark.usefixtures("folder")
def test_a_model_with_tied_weights_and_layers_of_transformers_own_is_proven() -> None:
    sizes = {"vocab_size": 50, "n_positions": 64, "n_embd": 16, "num_hidden_layers": 2, "n_head": 2}
    assert decomposed("gpt2", sizes).metadata.assumptions == ["input_ids: batch 2, sequence 32"]


@needs_transformers
@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_a_model_of_transformers_is_proven_from_its_configuration_experts_too(folder: Path) -> None:
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    tree = decomposed(
        "mixtral", sizes | {"num_key_value_heads": 1, "intermediate_size": 24, "num_local_experts": 4}
    )
    experts, inputs = tree.metadata.assumptions
    assert experts.startswith("experts: all tokens at once")
    assert inputs == "input_ids: batch 2, sequence 32"
    assert {"topk", "bmm"} <= {name.partition("_")[0] for name in tree.nodes}
    assert tree.nodes[str(tree.metadata.root)].output_shapes == [[2, 32, 50]]
    model = folder / "out/models/mixtral"
    assert "transformers" in (model / "verification/original.py").read_text()
    assert not [file for file in emitted(model) if "transformers" in file.read_text()]


@needs_transformers
@pytest.mark.parametrize(
    ("kind", "chosen"), [("deit", "architecture: DeiTForImageClassification"), ("esm", "vocab_size: 1000")]
)
def test_what_a_configuration_leaves_open_is_chosen_and_said(kind: str, chosen: str) -> None:
    source = hf_source(kind, {"num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2})
    assert chosen in source.assumptions
    made: dict[str, Any] = {}
    exec(source.code or "", made)
    made["Model"]()


@needs_transformers
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hf-config", "no-such-model"], "nothing is downloaded"),
        (["--hf-config", "gpt2", "--set", "layerz=2"], "has no such field"),
        (["--hf-config", "gpt2", "model.py"], "name files or folders, or one of"),
        (["--module", "layers"], "expected package.module:Class"),
        (["--module", "no_such_thing:Block"], "there is no module no_such_thing"),
        (["--module", "layers:Block", "--init", "(open('x'))"], "expected Python literals"),
        (["--module", "layers:Block", "--inputs", "x=floaty[2]"], "unknown type floaty"),
        (["--module", "layers:Block", "--inputs", "x=fp32[a-b]"], "invalid size"),
        (["model.py", "--set", "a=1"], "--set belongs to --hf-config"),
        (["model.py", "--init", "1"], "belong to --module"),
        ([], "name files or folders"),
    ],
)
def test_what_cannot_be_a_model_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["decompose", *arguments]) != 0
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_class_that_is_not_in_its_module_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["decompose", "--module", "layers:Blok", "--inputs", "fp32[2,16]", "--graph", "g.json"]) == 1
    assert "cannot import name 'Blok' from 'layers'" in capsys.readouterr().err


def test_inputs_are_read_with_names_types_ranges_and_literals() -> None:
    assumptions: list[str] = []
    given = parsed_inputs(
        "x=bf16[batch, rows, 4], ids=int64[batch]<7, k=int32[3], flag=True, pair=(1, 2), fp32[]", assumptions
    )
    assert [one.drawn for one in given] == [
        "torch.randn((2, 8, 4), dtype=torch.bfloat16)", "torch.randint(0, 7, (2,))",
        "torch.randint(0, 10, (3,), dtype=torch.int32)", "True", "(1, 2)", "torch.randn(())",
    ]  # fmt: skip
    assert [one.name for one in given] == ["x", "ids", "k", "flag", "pair", None]
    assert assumptions == ["k: from 0 to 9, no range was given", "batch = 2", "rows = 8"]


def test_the_constructor_gets_literals_and_types_alone() -> None:
    assert constructor("(64, heads=8, dtype=torch.bfloat16)") == ("64", "'heads': 8, 'dtype': torch.bfloat16")
    assert constructor("") == ("", "")
    assert constructor("(1, 2), name='a'") == ("(1, 2)", "'name': 'a'")
    with pytest.raises(SourceError):
        constructor("__import__('os')")
    assert keyword("a=2") == ("a", 2)
    assert keyword("act=gelu") == ("act", "gelu")


def test_neighbours_of_neighbours_and_of_packages_come_along(tmp_path: Path) -> None:
    written(
        tmp_path,
        {
            "net/__init__.py": "", "net/a.py": "from .b import f\nfrom .deep import c\nimport math\n",
            "net/b.py": "f = 1\n", "net/deep/c.py": "from ..b import f\n", "net/unused.py": "", "math.py": "raise OSError\n",
        },
    )  # fmt: skip
    assert set(local_modules("import net.a", [tmp_path])) == {
        "net",
        "net.a",
        "net.b",
        "net.deep",
        "net.deep.c",
    }
    code = "from .b import f\nf += 1\n"
    one = with_local_modules(code, tmp_path / "net", "model.py")
    names: dict[str, object] = {}
    exec(one, names)
    assert names["f"] == 2
    assert with_local_modules("import torch\n", tmp_path, "x") == "import torch\n"


def test_a_neighbour_that_does_not_parse_is_said(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(BadSource, match=r"broken\.py, which does not parse"):
        with_local_modules("import broken", tmp_path, "x")


def test_a_class_of_an_installed_package_needs_no_text_of_its_own(tmp_path: Path) -> None:
    model = module_source("torch.nn:Linear", "(4, 2)", "fp32[batch,4]", tmp_path)
    assert model.name == "Linear"
    assert model.code is not None
    assert "_LOCAL" not in model.code


def test_an_error_inside_a_package_names_its_file_and_line(tmp_path: Path) -> None:
    pytest.importorskip("einops")
    wrapper = module_source(
        "einops.layers.torch:Rearrange", "('b (h w) -> b h w', h=3)", "float32[2,8]", tmp_path
    )
    with pytest.raises(CannotRecord, match=r"einops/\S+\.py line \d+: ") as caught:
        decomposed_files({"code": wrapper.code, "name": "net", "source_file": "", "source_level": None})
    assert "super().forward" not in str(caught.value)
