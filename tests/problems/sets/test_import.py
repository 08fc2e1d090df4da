"""Importing problems: each is checked once, in its place, and what is no problem is said to be none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmill.base.whole_file import write_whole
from kernelmill.cli import main
from kernelmill.problems.sets.folder import read_set
from kernelmill.problems.sets.problem import Checked, Problem, Rejected, read_problems
from tests.conftest import write_rows
from tests.decompose.trees import write_tree
from tests.problems.sets.sets import REFERENCE, rl_row

CONSTANT = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""
LARGE = """import torch

rows = 65536
columns = 65536


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
"""
BOOK = """import torch


class Shift(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = by

    def forward(self, x):
        return torch.tanh(x) + self.by


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[], {"by": 3}]
"""
HUB = """import torch
from transformers import AutoConfig, AutoModelForCausalLM


class Model(torch.nn.Module):
    def __init__(self, name, config):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained(name, config=config)

    def forward(self, x):
        return self.model(x).logits


name = "{name}"
config = AutoConfig.from_pretrained(name)
length = 1000


def get_inputs():
    return [torch.randint(0, config.vocab_size, (1, length))]


def get_init_inputs():
    return [name, config]
"""


def lay_out(folder: Path, files: dict[str, str]) -> Path:
    for name, code in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(code, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a checkout of KernelBench is, with other Python files beside its levels."""
    return lay_out(
        tmp_path_factory.mktemp("repo"),
        {
            "KernelBench/level1/10_Shifted.py": REFERENCE.format(level=1, number=10),
            "KernelBench/level1/2_Large_.py": LARGE,
            "KernelBench/level1/3_Zeros.py": CONSTANT,
            "KernelBench/level2/1_Torn.py": REFERENCE.format(level=2, number=1)[:-60],
            "KernelBench/level2/4_Fails.py": CONSTANT.replace("zeros_like(x)", "no_such_function(x)"),
            "src/eval.py": "raise SystemExit('never run')",
        },
    )


@pytest.fixture(scope="module")
def imported(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("set") / "kernelbench"
    assert main(["problems", "import", str(checkout), "--into", str(folder), "--workers", "2"]) == 0
    return folder


def test_problems_are_laid_out_as_they_were_in_natural_order(checkout: Path, imported: Path) -> None:
    listed = (imported / "manifest.txt").read_text().splitlines()
    assert listed == ["level1/2_Large_.py", "level1/3_Zeros.py", "level1/10_Shifted.py"]
    for name in listed:
        assert (imported / name).read_bytes() == (checkout / "KernelBench" / name).read_bytes()
    assert "| 1 | 3 | 3 | 3 | 2 |" in (imported / "README.md").read_text()
    assert sorted(path.name for path in imported.iterdir()) == [
        "README.md",
        "level1",
        "manifest.txt",
        "problems.json",
    ]


def test_every_problem_ran_at_its_own_size_and_small_and_was_judged(imported: Path) -> None:
    record = read_set(imported)
    large, zeros, shifted = record.problems
    assert record.benchmark  # it is called KernelBench
    assert large.full is not None
    assert large.full.inputs[0].shape == [65536, 65536]
    assert large.full.kinds["softmax"] == 1
    assert large.shrunk is not None
    assert large.shrunk["elements"] < 65536 * 65536
    assert (large.admitted, shifted.admitted, zeros.admitted) == (True, True, False)
    assert zeros.reasons
    assert shifted.name == "Shifted"


def test_what_does_not_parse_or_run_is_not_imported_and_said(imported: Path) -> None:
    rejected = {Path(one.where.partition(":")[0]).name: one.reason for one in read_set(imported).rejected}
    assert set(rejected) == {"1_Torn.py", "4_Fails.py"}
    assert "get_inputs" in rejected["1_Torn.py"] or "parse" in rejected["1_Torn.py"]
    assert "no_such_function" in rejected["4_Fails.py"]


def test_a_second_import_checks_nothing_again(
    checkout: Path, imported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (imported / "problems.json").read_bytes()
    asked: list[str] = []

    def checked(one: Problem, _: object) -> Rejected:
        asked.append(one.file)
        return Rejected(one.where, "it does not run: no_such_function")

    monkeypatch.setattr("kernelmill.problems.sets.checks._checked", checked)
    assert main(["problems", "import", str(checkout), "--into", str(imported)]) == 0
    assert len(set(asked)) == len(asked) == 2  # those that did not run
    assert "3 known already" in capsys.readouterr().err
    assert json.loads((imported / "problems.json").read_bytes())["problems"] == json.loads(before)["problems"]


def test_list_show_and_stats_tell_what_the_checks_found(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["problems", "list", str(imported)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("level1/2_Large_")
    assert "x (65536, 65536) float32" in shown[0]
    assert "flagged" in shown[1]
    assert main(["problems", "show", "level1/2", str(imported)]) == 0
    assert "torch.softmax(x, dim=1)" in capsys.readouterr().out
    assert main(["problems", "stats", str(imported), "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["levels"]["1"] == {"problems": 3, "full_size": 3, "small": 3, "admitted": 2}
    assert stats["operators"]["softmax"] == 1
    assert stats["dtypes"] == {"float32": 3}
    assert stats["sizes"]["100M and more"] == 1
    assert main(["problems", "stats", str(imported)]) == 0
    assert main(["problems", "show", "Nobody", str(imported)]) == 2


def test_the_kernels_and_fusions_of_a_decomposed_model_are_problems_once_it_is_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tree(tmp_path / "output/level3/net")
    assert main(["problems", "import", "output", "--into", "parts"]) == 1
    assert "its proof is NOT_RUN" in capsys.readouterr().err
    tree = json.loads((folder / "decomposition_tree.json").read_text())
    tree["metadata"] |= {"verification_status": "PASS", "source_file": "data/kernelbench/level3/net.py"}
    (folder / "decomposition_tree.json").write_text(json.dumps(tree))
    assert main(["problems", "import", "output", "--into", "parts"]) == 0
    record = read_set(tmp_path / "parts")
    levels = [node["level"] for node in tree["nodes"].values()]
    assert [one.level for one in record.problems].count(1) == levels.count("kernel")
    assert [one.level for one in record.problems].count(2) == levels.count("fusion")
    assert record.source == {"kind": "decomposition", "path": "output"}
    assert record.benchmark


def test_a_folder_with_something_else_in_it_is_left_alone(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("dear diary")
    assert main(["problems", "import", str(checkout), "--into", "mine"]) == 1
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_kernelbook_row_becomes_a_problem_with_a_class_model(tmp_path: Path) -> None:
    rows = [{"python_code": BOOK, "entry_point": "Shift", "module_name": "Shift", "uuid": 77}]
    write_rows(tmp_path / "book.jsonl", rows)
    assert main(["problems", "import", "book.jsonl", "--level", "2"]) == 0
    record = read_set(tmp_path / "data/book")
    assert [one.file for one in record.problems] == ["level2/77_Shift.py"]
    assert record.problems[0].admitted
    assert not record.benchmark
    text = (tmp_path / "data/book/level2/77_Shift.py").read_text()
    assert text.startswith(BOOK.rstrip("\n"))
    assert "class Model(Shift)" in text


@pytest.mark.slow
@pytest.mark.heavy
def test_a_model_of_the_hub_comes_from_its_sizes_and_an_unknown_one_is_no_download(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    files = {"level4/1_gpt2.py": HUB.format(name="gpt2"), "level4/2_x.py": HUB.format(name="someone/unknown")}
    lay_out(tmp_path / "four", files)
    assert main(["problems", "import", "four"]) == 0
    record = read_set(tmp_path / "data/four")
    gpt2 = record.problems[0]
    assert gpt2.random_weights
    assert gpt2.full is not None
    assert gpt2.full.outputs[0].shape == [1, 1000, 50257]
    assert 124_000_000 < gpt2.full.parameters < 164_000_000
    assert gpt2.shrunk is not None
    assert [one.reason for one in record.rejected if "someone/unknown is not among" in one.reason]
    assert "random weights" in (tmp_path / "data/four/README.md").read_text()


def test_rows_of_the_hub_dataset_and_of_rl_prompts_are_problems_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    code = REFERENCE.format(level=2, number=7)
    hub = [{"code": code, "level": 2, "name": "7_Gemm_Scale_", "problem_id": 7}]
    pq.write_table(pa.Table.from_pylist(hub), tmp_path / "hub.parquet")
    write_rows(tmp_path / "prompts.jsonl", [rl_row(2, 7, "Gemm_Scale_")])
    found = []
    for name in ("hub.parquet", "prompts.jsonl"):
        _, _, problems, rejected, _ = read_problems(name, None, None)
        assert not rejected
        found += [(one.level, one.problem_id, one.name, one.code, one.file) for one in problems]
    assert found[0] == found[1] == (2, 7, "Gemm_Scale_", code, "level2/7_Gemm_Scale_.py")


def test_two_problems_of_one_number_are_not_both_taken(tmp_path: Path) -> None:
    lay_out(tmp_path / "twins", {"level1/1_a.py": CONSTANT, "level1/1_b.py": LARGE})
    _, _, problems, rejected, _ = read_problems("twins", None, None)
    assert [one.name for one in problems] == ["a"]
    assert ["1_b.py" in one.where and "1_a.py" in one.reason for one in rejected] == [True]


def test_an_import_that_was_interrupted_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(tmp_path / "two", {"level1/1_a.py": REFERENCE.format(level=1, number=1), "level1/2_b.py": LARGE})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kernelmill.problems.sets.importing.write_set", interrupted)
        assert main(["problems", "import", "two"]) == 130
    journal = tmp_path / "data/two/.checks.jsonl"
    journal.write_bytes(journal.read_bytes()[:-50])  # the machine went down while the last line was written
    assert main(["problems", "import", "two"]) == 0
    assert "1 known already" in capsys.readouterr().err
    assert len(read_set(tmp_path / "data/two").problems) == 2
    assert not journal.exists()


def passed(one: Problem) -> Checked:
    return Checked(
        one.level, one.problem_id, one.name, one.file, one.sha256, False, None, "not tried", {}, True, []
    )


def test_an_import_that_is_killed_while_it_lays_the_set_out_goes_on_and_leaves_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(tmp_path / "two", {"level1/1_a.py": CONSTANT, "level1/2_b.py": LARGE})

    monkeypatch.setattr("kernelmill.problems.sets.checks._checked", lambda one, _: passed(one))
    assert main(["problems", "import", "two"]) == 0
    capsys.readouterr()
    (tmp_path / "two/level1/2_b.py").rename(tmp_path / "two/level1/3_b.py")
    folder = tmp_path / "data/two"
    for number in range(6):  # journal, two problems, listing, README, record

        def killed(path: Path, content: bytes, left: list[int] = [number]) -> None:  # noqa: B006
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            write_whole(path, content)

        with monkeypatch.context() as patch:
            patch.setattr("kernelmill.problems.sets.folder.write_whole", killed)
            assert main(["problems", "import", "two"]) == 130
        assert "2 known already" in capsys.readouterr().err
    assert main(["problems", "import", "two"]) == 0
    assert "2 known already" in capsys.readouterr().err
    assert sorted(path.name for path in folder.rglob("*.py")) == ["1_a.py", "3_b.py"]
    assert [one.problem_id for one in read_set(folder).problems] == [1, 3]
    assert not (folder / ".checks.jsonl").exists()


def test_problems_without_a_number_take_the_numbers_that_are_free(tmp_path: Path) -> None:
    names = ("3_x.py", "a.py", "b.py", "c.py", "1_y.py")
    lay_out(tmp_path / "some", {name: REFERENCE.format(level=1, number=len(name)) for name in names})
    found = read_problems("some", None, None)
    assert found.rejected == []
    numbers = [(one.level, one.problem_id, one.name) for one in found.problems]
    assert numbers == [(1, 1, "y"), (1, 2, "a"), (1, 3, "x"), (1, 4, "b"), (1, 5, "c")]


def test_a_file_without_a_number_keeps_its_name_unless_another_has_it(tmp_path: Path) -> None:
    text = {n: REFERENCE.format(level=3, number=n) for n in range(1, 5)}
    lay_out(tmp_path / "kb/level3", {"1_x.py": text[1], "gpt_oss.py": text[2]})
    assert [one.file for one in read_problems("kb", None, None).problems] == [
        "level3/1_x.py",
        "level3/gpt_oss.py",
    ]
    rows = [{"module_name": "Net", "python_code": text[n]} for n in (1, 2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [one.file for one in read_problems("rows.jsonl", None, 2).problems] == [
        "level2/Net.py",
        "level2/2_Net.py",
    ]
    assert main(["problems", "import", "kb", "--into", "set"]) == 0
    assert (tmp_path / "set/manifest.txt").read_text() == "level3/1_x.py\nlevel3/gpt_oss.py\n"
    assert (tmp_path / "set/level3/gpt_oss.py").read_text() == text[2]


def test_a_part_of_kernelbench_or_of_its_prompts_is_a_benchmark_under_any_name(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / "prompts.jsonl", [rl_row(2, 7)])
    other = rl_row(1, 1)
    other["extra_info"]["data_source"] = "mine_triton"
    write_rows(tmp_path / "marked.jsonl", [{**other, "benchmark": True}])
    write_rows(tmp_path / "other.jsonl", [other])
    here = f"{checkout}/KernelBench/level1"
    for spec in (
        here,
        f"mine={checkout}/KernelBench",
        f"{here}/3_Zeros.py",
        "mine=prompts.jsonl",
        "marked.jsonl",
    ):
        assert read_problems(spec, None, None).benchmark, spec
    assert not read_problems("other.jsonl", None, None).benchmark
    monkeypatch.chdir(here)
    assert read_problems("../level1", None, None).benchmark


def test_a_record_that_is_broken_is_told_with_a_way_out_and_nothing_is_written(
    imported: Path, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    torn = (imported / "problems.json").read_bytes()[:300]
    (tmp_path / "mine/problems.json").write_bytes(torn)
    for line in (["list", "mine"], ["import", str(checkout), "--into", "mine"]):
        assert main(["problems", *line]) == 1
        assert "remove mine and import again" in capsys.readouterr().err
    assert (tmp_path / "mine/problems.json").read_bytes() == torn
