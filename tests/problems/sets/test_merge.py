"""Merging level files: the documented bytes, from any folder, whatever the files look like at their ends."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.cli import main
from kernelmill.errors import ConfigError
from kernelmill.problems.sets.levels import level_file
from kernelmill.problems.sets.merge import merged, parse_weights, read_levels
from tests.conftest import ROOT, many
from tests.problems.sets.sets import rl_row, write_levels

ALL = "kernel_bench_triton_all_levels.jsonl"
SMALL = {1: 6, 2: 5, 3: 3, 4: 2}


def the_plain_way(rows: list[dict[str, object]], seed: int | None = 42) -> bytes:
    """What the documented recipe gives: parse, shuffle by Python's global functions, write."""
    found = list(rows)
    if seed is not None:
        random.seed(seed)
        random.shuffle(found)
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found).encode()


@pytest.mark.parametrize("arguments", [[], ["--seed", "7"], ["--no-shuffle"]], ids=" ".join)
def test_the_bytes_are_those_of_the_documented_recipe(tmp_path: Path, arguments: list[str]) -> None:
    rows = write_levels(tmp_path)
    assert main(["problems", "merge", *arguments]) == 0
    seed = None if "--no-shuffle" in arguments else int(arguments[-1]) if arguments else 42
    assert (tmp_path / ALL).read_bytes() == the_plain_way(rows, seed)


def test_the_old_commands_work_on_the_folder_they_are_called_from(tmp_path: Path) -> None:
    rows = write_levels(tmp_path)
    scripts = ROOT / "data/kernel_bench"

    def call(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, str(scripts / name), *arguments]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240)

    made = call("merge_triton_levels.py", "--seed", "3", "--output", "mine.jsonl")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "mine.jsonl").read_bytes() == the_plain_way(rows, 3)
    assert call("verify_merged_data.py").returncode == 1  # there is no merged file yet
    assert call("merge_triton_levels.py").returncode == 0
    verified = call("verify_merged_data.py")
    assert verified.returncode == 0, verified.stdout
    assert "OK" in verified.stdout
    assert sorted(path.name for path in scripts.iterdir() if path.suffix == ".jsonl") == []


@pytest.mark.parametrize("name", ["merge_triton_levels.py", "verify_merged_data.py"])
def test_the_old_commands_say_in_a_line_that_a_python_has_no_kernelmill(tmp_path: Path, name: str) -> None:
    line = [sys.executable, "-S", str(ROOT / "data/kernel_bench" / name)]  # without what is installed
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "No module named 'kernelmill'" in done.stderr


def test_the_report_has_the_documented_numbers_as_text_json_and_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_levels(tmp_path)
    assert main(["problems", "merge"]) == 0
    shown = capsys.readouterr().out
    text = (tmp_path / ALL.replace(".jsonl", "_report.txt")).read_text()
    report = json.loads((tmp_path / ALL.replace(".jsonl", "_report.json")).read_text())
    plot = (tmp_path / ALL.replace(".jsonl", "_report.svg")).read_text()
    assert [share["percent"] for share in report["levels"]] == [37.0, 37.0, 18.5, 7.4]
    assert [share["rows"] for share in report["levels"]] == [100, 100, 50, 20]
    assert (report["rows"], report["names"], report["repeated"]) == (270, 269, {"Gemm_Scale": 2})
    for said in ("37.0 %", "18.5 %", "7.4 %"):
        assert said in text
        assert said in plot
    assert "269 different problem names" in shown


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda content: content.removesuffix(b"\n"), "without a line end"),
        (lambda content: content.replace(b"\n", b"\r\n"), "CRLF"),
        (lambda content: content.replace(b"\n", b"\n\n", 2), "blank line"),
        (lambda content: b"\xef\xbb\xbf" + content, "byte order mark"),
        (lambda content: content + b"\n", "blank line"),
    ],
    ids=["no end", "crlf", "blank", "bom", "blank end"],
)
def test_what_is_odd_about_a_file_is_said_and_does_not_change_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: object, said: str
) -> None:
    rows = write_levels(tmp_path, SMALL)
    file = level_file(tmp_path, 2)
    file.write_bytes(spoil(file.read_bytes()))  # type: ignore[operator]
    assert main(["problems", "merge"]) == 0
    assert (tmp_path / ALL).read_bytes() == the_plain_way(rows)
    assert said in capsys.readouterr().err


def test_lines_that_json_would_write_otherwise_stay_as_they_are(tmp_path: Path) -> None:
    write_levels(tmp_path, SMALL)
    file = level_file(tmp_path, 1)
    odd = json.dumps(rl_row(1, 77), ensure_ascii=True, separators=(",", ":")).encode()
    file.write_bytes(file.read_bytes() + odd + b"\n")
    assert main(["problems", "merge"]) == 0
    assert odd in (tmp_path / ALL).read_bytes().split(b"\n")


def test_a_torn_line_or_a_missing_level_ends_it_and_leaves_what_was_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_levels(tmp_path, SMALL)
    assert main(["problems", "merge"]) == 0
    before = (tmp_path / ALL).read_bytes()
    whole = level_file(tmp_path, 3).read_bytes()
    level_file(tmp_path, 3).write_bytes(whole[:-40])
    assert main(["problems", "merge"]) == 1
    assert f"{level_file(Path(), 3)}:3" in capsys.readouterr().err
    level_file(tmp_path, 3).unlink()
    assert main(["problems", "merge"]) == 1
    assert "no such file" in capsys.readouterr().err
    assert (tmp_path / ALL).read_bytes() == before


def test_some_levels_have_a_file_of_their_own_and_verify(tmp_path: Path) -> None:
    rows = write_levels(tmp_path, {1: 100, 2: 100})
    assert main(["problems", "merge", "--levels", "1,2"]) == 0
    assert (tmp_path / "kernel_bench_triton_levels_1_2.jsonl").read_bytes() == the_plain_way(rows)
    assert main(["problems", "verify", "--levels", "1,2"]) == 0
    assert not (tmp_path / ALL).exists()


def test_a_level_file_is_never_the_output(tmp_path: Path) -> None:
    write_levels(tmp_path, SMALL)
    before = level_file(tmp_path, 1).read_bytes()
    assert main(["problems", "merge", "-o", level_file(tmp_path, 1).name]) == 1
    assert main(["problems", "merge", "--levels", "2,3", "-o", level_file(tmp_path, 1).name]) == 1
    assert level_file(tmp_path, 1).read_bytes() == before


@given(
    weights=st.dictionaries(st.sampled_from(sorted(SMALL)), st.sampled_from([0, 0.5, 1, 1.34, 2, 3])),
    order=st.sampled_from(["shuffle", "level", "difficulty", "interleave"]),
    seed=st.integers(-(2**40), 2**40),
)
@settings(max_examples=many(150), deadline=None)
def test_every_order_and_mixture_has_the_rows_it_should_have_and_is_the_same_each_time(
    tmp_path_factory: pytest.TempPathFactory, weights: dict[int, float], order: str, seed: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "orders"
    if not folder.exists():
        folder.mkdir()
        write_levels(folder, SMALL)
    placed = read_levels(folder, sorted(SMALL))
    expected = {level: round(count * weights.get(level, 1)) for level, count in SMALL.items()}
    if not any(expected.values()):
        return
    made = merged(placed, order, seed, weights)  # type: ignore[arg-type]
    assert made == merged(placed, order, seed, weights)  # type: ignore[arg-type]
    counts = Counter(one.level for one in made)
    assert {level: counts[level] for level in SMALL} == expected
    for one, times in Counter(one.line.raw for one in made).items():
        level = next(place.level for place in placed if place.line.raw == one)
        assert int(weights.get(level, 1)) <= times <= int(weights.get(level, 1)) + 1


def test_the_orders_are_what_they_are_called(tmp_path: Path) -> None:
    write_levels(tmp_path, {1: 8, 2: 4})
    placed = read_levels(tmp_path, [1, 2])
    assert [one.level for one in merged(placed, "level")] == [1] * 8 + [2] * 4
    assert [one.level for one in merged(placed, "difficulty")] == [1] * 8 + [2] * 4
    assert [one.level for one in merged(placed, "interleave")] == [1, 2, 1] * 4


def test_an_easy_problem_comes_before_a_harder_one_of_its_level(tmp_path: Path) -> None:
    hard, easy = rl_row(1, 1), rl_row(1, 2)
    hard["label"] = hard["label"].replace("self.linear(x)", "torch.relu(torch.tanh(self.linear(x)))")
    level_file(tmp_path, 1).write_text(json.dumps(hard) + "\n" + json.dumps(easy) + "\n")
    made = merged(read_levels(tmp_path, [1]), "difficulty")
    assert [one.row["instance_id"][-1] for one in made] == ["2", "1"]


@pytest.mark.parametrize("text", ["1", "1=x", "a=1", "1=-1", "9=1", "1=nan", "", "1=1,1=2"])
def test_weights_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--weights"):
        parse_weights(text, [1, 2])
