"""Task admission: what a null candidate would pass is refused with the reason, and good tasks are admitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernelmill.errors import OutputError, SourceError  # noqa: E402
from kernelmill.evaluate.admit.command import table  # noqa: E402
from kernelmill.evaluate.admit.worker import admission, handle  # noqa: E402
from kernelmill.settings.commands import run_tool  # noqa: E402

main = partial(run_tool, "admit")


def source(forward: str, inputs: str = "[torch.randn(8, 32)]", build: str = "pass") -> str:
    return (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {build}\n"
        f"    def forward(self, x, *y):\n        return {forward}\ndef get_inputs():\n    return {inputs}\n"
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The tensors are small: threads that wait for each other are most of the time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


LINEAR = "self.w = nn.Linear(32, 16)"
ZERO_BIAS = "self.w = nn.Linear(32, 16); nn.init.zeros_(self.w.bias)"

GOOD = {
    "linear": source("self.w(x)", build=LINEAR),
    "linear with a bias of zeros": source("self.w(x)", build=ZERO_BIAS),
    "softmax": source("x.softmax(-1)"),
    "softmax of positive inputs": source("x.softmax(-1)", "[torch.rand(8, 512)]"),
    "layer norm": source("F.layer_norm(x, (32,))"),
    "scalar loss": source("F.mse_loss(x, y[0])", "[torch.rand(8, 32), torch.rand(8, 32)]"),
    "cross entropy": source("F.cross_entropy(x, y[0])", "[torch.randn(8, 32), torch.randint(0, 32, (8,))]"),
    "half precision": source("x.relu()", "[torch.randn(8, 32).half()]"),
    "dropout in training": source("F.dropout(self.w(x), 0.5, self.training)", build=LINEAR),
    "log of positive inputs": source("torch.log(x + 1e-3)", "[torch.rand(8, 32)]"),
    "embedding": source("self.e(x)", "[torch.randint(0, 50, (8, 4))]", "self.e = nn.Embedding(50, 8)"),
    "two outputs": source("(x.sin(), {'c': x.cos()})"),
    "writes to its input": source("x.mul_(2).sin()"),
}
BAD = {
    "zeros passes": source("x - x"),
    "the mean everywhere passes": source("x.sum() - x.sum() + torch.ones(8, 32)"),
    "an input passed through passes": source("F.dropout(x, 0.5, False)"),
    "permuted rows passes": source("self.w(x).mean(0).expand(8, 16)", build=LINEAR),
    "half of the rows passes": source("F.pad(x[:4].sin(), (0, 0, 0, 4))"),
    "no bias passes": source(
        "F.layer_norm(self.w(x) * 0 + self.v(x), (16,))",
        build=f"{LINEAR}; self.v = nn.Linear(32, 16, bias=False)",
    ),
    "weights ignored passes": source("x.sin() + 0 * self.w(x).sum()", build=LINEAR),
    "inputs ignored passes": source("self.w(torch.ones(8, 32)) + 0 * x.sum()", build=LINEAR),
    "float16 passes": source("(x > 0).float()"),
    "the reference is random, also in eval mode": source("x + torch.randn(32)"),
    "its result is mostly rounding": source("F.layer_norm(x, (32,)).mean(-1)"),
    "its own inputs": source("(x - 3).log()"),
    "it returns no tensor": source("None"),
    "it cannot be tried": source("x.no_such_thing()"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_task_that_can_be_judged_is_admitted(name: str) -> None:
    found = admission(GOOD[name])
    assert found["reasons"] == []
    assert found["admitted"]
    assert all(said != "passes" for said in found["details"]["nulls"].values())


@pytest.mark.parametrize("reason", BAD)
def test_a_task_that_teaches_nothing_is_refused_with_the_reason(reason: str) -> None:
    found = admission(BAD[reason])
    assert not found["admitted"]
    assert any(said.startswith(reason) for said in found["reasons"]), found["reasons"]


TWO, THREE = "[torch.randn(8, 32), torch.randn(8, 32)]", "[torch.randn(8, 32) for _ in range(3)]"
THROUGH = {
    "the second input": (source("y[0] + 0 * x", TWO), "returns args[1] as output, unchanged"),
    "the last of three": (source("y[1] * 1", THREE), "returns args[2] as output, unchanged"),
    "another for each output": (
        source("(y[1] * 1, y[0].reshape(32, 8) * 1)", THREE),
        "returns args[2] as output[0]; args[1] as output[1], unchanged",
    ),
}


@pytest.mark.parametrize("which", THROUGH)
def test_every_input_is_tried_as_an_answer_and_the_one_that_passes_is_named(which: str) -> None:
    code, words = THROUGH[which]
    (reason,) = [
        said for said in admission(code)["reasons"] if said.startswith("an input passed through passes")
    ]
    assert reason == f"an input passed through passes: a candidate is accepted that {words}"


UNREAD = {
    "an unused one": (source("x.sin()", TWO), ["args[1]"]),
    "the first of two": (source("y[0].sin()", TWO), ["args[0]"]),
    "one multiplied by zero": (source("x.sin() + 0 * y[0]", TWO), ["args[1]"]),
    "one whose effect is below the tolerance": (source("x.sin() + 1e-10 * y[0]", TWO), ["args[1]"]),
    "one of which only the shape is used": (source("x.sin().view_as(y[0])", TWO), ["args[1]"]),
    "two of three": (source("y[0].sin()", THREE), ["args[0]", "args[2]"]),
    "one in a dictionary": (
        source("x['a'].sin()", "[{'a': torch.randn(8, 32), 'b': torch.randn(8, 32)}]"),
        ["args[0]['b']"],
    ),
    "an unused index": (source("x.sin()", "[torch.randn(8, 32), torch.randint(0, 8, (8,))]"), ["args[1]"]),
    "one in a scalar result": (source("x.square().sum()", TWO), ["args[1]"]),
}
READ = {
    "a sum of two": source("x.sin() + y[0].cos()", TWO),
    "one for each output": source("(x.sin(), y[0].cos())", TWO),
    "a scalar result of two": source("(x * y[0]).square().sum()", TWO),
    "a mask": source("x.masked_fill(y[0], 0.5)", "[torch.randn(8, 32), torch.rand(8, 32) < 0.1]"),
    "a number": source("x * y[0]", "[torch.randn(8, 32), torch.rand(())]"),
    "a target of a loss": source(
        "F.cross_entropy(x, y[0])", "[torch.randn(8, 32), torch.randint(0, 32, (8,))]"
    ),
    "inputs in a list": source("x[0].sin() * x[1]", "[[torch.randn(8, 32), torch.randn(8, 32)]]"),
    "one tensor passed twice": source("x.sin() * y[0]", "[torch.randn(8, 32)] * 2"),
}
SAME = {
    "a constant index": source("x.sin()[y[0]]", "[torch.randn(8, 32), torch.arange(8) // 2]"),
    "a constant index that does nothing": source("x.sin()[y[0]]", "[torch.randn(8, 32), torch.arange(8)]"),
    "a mask that is always open": source("x.sin() * y[0]", "[torch.randn(8, 32), torch.ones(8, 32)]"),
    "an empty tensor": source("torch.cat([x.sin(), y[0]])", "[torch.randn(8, 32), torch.empty(0, 32)]"),
}


@pytest.mark.parametrize("which", UNREAD)
def test_an_input_that_does_not_matter_is_named(which: str) -> None:
    code, paths = UNREAD[which]
    found = admission(code)
    assert not found["admitted"]
    assert [said for said in found["reasons"] if "does not matter" in said] == [
        f"{path} does not matter: a candidate is accepted that never reads it" for path in paths
    ]
    assert [path for path, said in found["details"]["unread"].items() if said == "passes"] == paths


@pytest.mark.parametrize("which", READ)
def test_a_task_that_reads_all_its_inputs_is_admitted(which: str) -> None:
    found = admission(READ[which])
    assert found["admitted"], found["reasons"]
    assert set(found["details"]["unread"].values()) == {"refused"}


@pytest.mark.parametrize("which", SAME)
def test_an_input_that_is_the_same_in_every_draw_is_no_reason(which: str) -> None:
    found = admission(SAME[which])
    assert found["admitted"], found["reasons"]
    assert found["details"]["unread"] == {
        "args[0]": "refused",
        "args[1]": "does not apply: it is the same in every draw",
    }


def test_an_input_of_which_the_reference_refuses_another_draws_value_is_no_reason() -> None:
    code = source(
        "x.sin() if int((x > 0).sum()) == y[0] else 1 / 0", "[v := torch.randn(8, 32), (v > 0).sum()]"
    )
    found = admission(code)
    assert found["admitted"], found["reasons"]
    for said in found["details"]["unread"].values():
        assert said.startswith("does not apply: the reference refuses another draw's: forward(): ")


def test_an_input_that_only_another_question_needs_is_listed() -> None:
    code = source("x.sin().masked_fill(y[0] > 5, 0)", TWO)
    found = admission(code)
    assert found["admitted"], found["reasons"]
    assert found["details"]["unread"]["args[1]"].startswith("refused only by ")


def test_a_task_that_ignores_all_its_inputs_is_told_so_once() -> None:
    reasons = admission(BAD["inputs ignored passes"])["reasons"]
    assert [said for said in reasons if "input" in said or "args" in said] == [
        "inputs ignored passes: a candidate is accepted that gives the answer to other inputs"
    ]


def test_what_passes_is_said_in_plain_words_and_one_computed_output_is_enough() -> None:
    assert "zeros passes: a candidate is accepted that returns zeros" in admission(source("x - x"))["reasons"]
    found = admission(source("(y[0] * 1, x.sin())", TWO))
    assert found["admitted"], found["reasons"]
    assert found["details"]["passed_through"] == {"output[0]": ["args[1]"], "output[1]": []}


def test_a_null_that_only_another_question_refuses_is_listed() -> None:
    details = admission(GOOD["linear with a bias of zeros"])["details"]
    assert details["nulls"]["no bias"] == "refused only by weights"


def test_a_large_task_is_tried_at_a_smaller_size_and_says_so() -> None:
    found = admission(source("x.softmax(-1)", "[torch.rand(65536, 4096)]"))
    assert found["admitted"]
    assert found["details"]["size"]["kind"] == "shrunk"
    assert found["details"]["size"]["changes"]


def test_the_same_seed_gives_the_same_row() -> None:
    request = {"reference": GOOD["linear"], "entry_point": "Model", "seed": 5, "limits": {"elements": 5000}}
    assert handle(request) == handle(request)


# ------------------------------------------------------------------------------------------------ the command line


@pytest.mark.slow
def test_the_command_gives_a_row_a_problem_whatever_it_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = tmp_path / "problems", tmp_path / "rows.jsonl"
    folder.mkdir()
    (folder / "2_good.py").write_text(GOOD["softmax"])
    (folder / "10_zeros.py").write_text(BAD["zeros passes"])
    (folder / "11_ends.py").write_text("import os\nos._exit(0)\n")
    (folder / "12_hangs.py").write_text("while True: pass\n")
    assert main([str(folder), "-o", str(output), "--timeout", "5"]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(row["id"], row["admitted"]) for row in rows] == [
        ("2_good", True),
        ("10_zeros", False),
        ("11_ends", False),
        ("12_hangs", False),
    ]
    assert rows[3]["reasons"] == ["it cannot be tried: timeout"]
    shown = capsys.readouterr().out
    assert "1 of 4 admitted" in shown
    assert main([str(folder / "2_good.py"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "2_good"


def test_the_table_counts_the_reasons() -> None:
    rows = [
        {"id": "a", "admitted": True, "reasons": []},
        {"id": "bb", "admitted": False, "reasons": ["zeros passes", "it cannot be tried: this"]},
        {"id": "c", "admitted": False, "reasons": ["it cannot be tried: that"]},
    ]
    assert table(rows).splitlines() == [
        "a   admitted",
        "bb  refused   zeros passes; it cannot be tried: this",
        "c   refused   it cannot be tried: that",
        "",
        "1 of 3 admitted",
        "     2  it cannot be tried",
        "     1  zeros passes",
    ]


def test_nothing_to_read_or_nowhere_to_write_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such file"):
        main([str(tmp_path / "missing.py")])
    with pytest.raises(SourceError, match=r"no \.py file"):
        main([str(tmp_path)])
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    with pytest.raises(SourceError, match="binary"):
        main([str(tmp_path)])
    problem = tmp_path / "ok.py"
    problem.write_text(GOOD["softmax"])
    with pytest.raises(OutputError, match="nowhere"):
        main([str(problem), "-o", str(tmp_path / "nowhere" / "rows.jsonl")])
