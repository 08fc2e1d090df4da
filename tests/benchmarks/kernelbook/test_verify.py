"""KernelBook rows judged again: every row is accounted for, what is kept is unchanged, nothing is judged twice."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelmill.benchmarks.kernelbook import verify as module
from kernelmill.benchmarks.kernelbook.tally import NO_LICENCE, Tally
from kernelmill.benchmarks.kernelbook.verify import Book, Task, Unread, told, verify
from kernelmill.cli import main
from kernelmill.errors import SourceError
from kernelmill.evaluate.batch import Done, PairBatch
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.score.summary import Summary
from kernelmill.evaluate.verdict import Flag, Status, Tier, Verdict
from kernelmill.store import Output, open_source
from tests.benchmarks.kernelbook.book_rows import AFFINE, AFFINE_NEW, EXPECTED, ROWS, book_row
from tests.conftest import command, quick_command, read_rows, write_rows

# Rows are judged for real, most of them by the first test that asks for `whole`.
pytestmark = pytest.mark.timeout(900)
CPU = ("--device", "cpu", "--workers", "2")


def mill(*arguments: str) -> int:
    return main(["verify-kernelbook", *arguments])


def judged_now(said: str) -> int:
    found = re.search(r"judged now +(\d+)", said)
    assert found
    return int(found[1])


def manifest(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all rows were judged once."""
    folder = tmp_path_factory.mktemp("whole")
    write_rows(folder / "rows.jsonl", ROWS)
    done = subprocess.run(
        quick_command("verify-kernelbook", "rows.jsonl", "-o", "ok.jsonl", *CPU),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout)
    return folder


def test_every_row_has_the_outcome_it_should(whole: Path) -> None:
    found = {}
    for record in read_rows(whole / "ok.verdicts.jsonl"):
        verdict = Verdict.from_dict(record)
        truth = told(verdict).truth
        found[verdict.id] = (truth, None if truth == "inconclusive" else verdict.status)
    assert found == EXPECTED


def test_a_verified_row_is_the_row_unchanged_and_its_verdict(whole: Path) -> None:
    source = {str(row["uuid"]): row for row in ROWS}
    lines = (whole / "ok.jsonl").read_text().splitlines()
    originals = (whole / "rows.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [str(row["uuid"]) for row in rows] == [
        key for key, (truth, _) in EXPECTED.items() if truth == "correct"
    ]
    for row, line in zip(rows, lines, strict=True):
        added = {name: row.pop(name) for name in ("verdict", "truth", "restated")}
        assert row == source[str(row["uuid"])]
        assert line.startswith(originals[row["uuid"] - 1][:-1])
        assert Verdict.from_dict(added["verdict"]).verdict == added["truth"] == "correct"
        assert added["verdict"]["tier"] == "interpreter"
        assert added["restated"] == ["grid"]


def test_the_real_compiler_is_asked_about_the_kernels_of_a_verified_row(whole: Path) -> None:
    for row in read_rows(whole / "ok.jsonl"):
        kernels = [
            kernel
            for target in row["verdict"]["compile"]["targets"].values()
            for kernel in target["kernels"].values()
        ]
        assert kernels
        assert [kernel["error"] for kernel in kernels if kernel["status"] is not None] == []


def test_rows_in_are_rows_out_and_rows_rejected_with_their_reasons(whole: Path) -> None:
    rejected = {str(row["row"]["uuid"]): row["reason"] for row in read_rows(whole / "ok.rejected.jsonl")}
    kept = {str(row["uuid"]) for row in read_rows(whole / "ok.jsonl")}
    assert kept | set(rejected) == set(EXPECTED)
    assert not kept & set(rejected)
    counts = manifest(str(whole / "ok.manifest.json"))["rows"]
    assert (counts["in"], counts["out"], counts["rejected"]) == (14, 7, 7)
    assert rejected["8"] == "incorrect (FORMAT_ERROR): defines no @triton.jit kernel"
    assert rejected["9"].startswith("incorrect (INCORRECT_NUMERICAL): relL2")
    assert rejected["10"] == "hack (HACK): A1.no_kernel_launched"
    assert rejected["12"].startswith(
        "inconclusive (needs another torch, or a GPU): ImportError: cannot import name 'no_such_grid'"
    )
    assert rejected["13"].startswith("inconclusive (UNSUPPORTED): the reference cannot be used")
    assert rejected["14"].startswith("inconclusive (")


def test_the_summary_counts_by_status_and_licence(whole: Path) -> None:
    found = manifest(str(whole / "ok.manifest.json"))
    assert found["verified"] == {"tiers": {"interpreter": 7}, "mostly_torch": 2}
    assert found["outcomes"]["correct"] == {"PASSED": 7}
    assert found["licences"]["MIT"] == {
        "rows": 11, "correct": 4, "hack": 1, "inconclusive": 3, "incorrect": 3, "kept": 4,
    }  # fmt: skip
    assert found["licences"]["GPL-3.0"] == {"rows": 1, "correct": 1, "kept": 1}
    assert found["licences"][NO_LICENCE] == {"rows": 1, "correct": 1, "kept": 1}
    said = (whole / "said.txt").read_text()
    assert "verified    7: 7 at tier interpreter; in 2 of them torch does most of the work" in said
    assert re.search(r"^  MIT +11 +4 +3 +1 +3 +0 +4$", said, re.MULTILINE)
    assert max(map(len, said.splitlines())) <= 120


def test_another_choice_of_rows_judges_nothing_again(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(Path("rows.jsonl"), ROWS)
    Path("ok.verdicts.jsonl").write_text((whole / "ok.verdicts.jsonl").read_text())
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU, "--keep", "all") == 0
    assert judged_now(capsys.readouterr().out) == 0
    kept = read_rows(Path("ok.jsonl"))
    assert [row["truth"] for row in kept] == [truth for truth, _ in EXPECTED.values()]
    assert read_rows(Path("ok.rejected.jsonl")) == []


@pytest.mark.heavy
def test_a_killed_run_goes_on_where_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS[:4])
    journal = tmp_path / "ok.verdicts.jsonl.journal.jsonl"
    line = command("verify-kernelbook", "rows.jsonl", "-o", "ok.jsonl", "--device", "cpu", "--workers", "1")
    first = subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 240
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < until
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "ok.jsonl").exists()
    had = journal.read_bytes().count(b"\n")
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU) == 0
    assert judged_now(capsys.readouterr().out) == 4 - had
    assert len(read_rows(tmp_path / "ok.jsonl")) == 4


def test_rows_of_other_licences_are_neither_judged_nor_lost(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        book_row("Affine", AFFINE, AFFINE_NEW, ["MIT"], 1),
        book_row("Affine", AFFINE, AFFINE_NEW, ["mit", "Apache-2.0"], 2),
        book_row("Affine", AFFINE, AFFINE_NEW, ["MIT", "GPL-3.0"], 3),
        book_row("Affine", AFFINE, AFFINE_NEW, [], 4),
        book_row("Affine", AFFINE, AFFINE_NEW, ["MIT"], 5) | {"triton_code": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), "rows.parquet")
    assert mill("rows.parquet", "-o", "ok.jsonl", *CPU, "--licences", "MIT, apache-2.0") == 0
    assert judged_now(capsys.readouterr().out) == 1  # two rows of the same content
    assert [row["uuid"] for row in read_rows(Path("ok.jsonl"))] == [1, 2]
    assert [row["verdict"]["id"] for row in read_rows(Path("ok.jsonl"))] == ["1", "2"]
    assert [row["reason"] for row in read_rows(Path("ok.rejected.jsonl"))] == [
        "not of an allowed licence: MIT, GPL-3.0",
        "not of an allowed licence: none is named",
        "the row has no triton_code",
    ]
    found = manifest("ok.manifest.json")
    assert found["outcomes"]["not judged"] == {"not of an allowed licence": 2, "no triton_code": 1}
    assert found["config"] == {"source": "rows.parquet", "device": "cpu", "licences": "apache-2.0,mit"}


def test_to_the_letter_a_row_needs_the_torch_that_wrote_it() -> None:
    write_rows(Path("rows.jsonl"), ROWS[:1])
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU, "--as-is", "--keep", "all") == 0
    (row,) = read_rows(Path("ok.jsonl"))
    assert (row["truth"], row["restated"]) == ("inconclusive", [])


@pytest.fixture
def book() -> Book:
    write_rows(Path("rows.jsonl"), ROWS[:2])
    source, options = Path("rows.jsonl"), Options(device="cpu", seed=1)
    return Book(
        source=source,
        output=Path("ok.verdicts.jsonl"),
        options=options,
        workers=1,
        rows=open_source("rows.jsonl"),
    )


@pytest.mark.parametrize("wrong", ["another row's", "too few", "too many"])
def test_a_verdict_is_given_to_its_own_row_alone(
    book: Book, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        Verdict(pair.id, "PASSED", "interpreter").to_dict() | {"key": key} for key, pair in book.pairs()
    ]
    changed = {"another row's": records[::-1], "too few": records[:1], "too many": [*records, records[0]]}[
        wrong
    ]

    def judged(batch: PairBatch) -> Done:
        write_rows(batch.output, changed)
        return Done(Summary(), 2, True)

    monkeypatch.setattr(module, "run", judged)
    with (
        Output(Path("ok.jsonl")) as output,
        pytest.raises(SourceError, match="was changed while it was used"),
    ):
        verify(book, output, "correct")
    assert not Path("ok.jsonl").exists()


def test_a_limit_takes_the_first_rows(book: Book) -> None:
    tasks = list(Book(**{**vars(book), "limit": 1}).tasks())
    assert [task.pair.id for task in tasks if isinstance(task, Task)] == ["1"]
    assert len(tasks) == 1


def test_a_bad_row_stops_the_command_or_is_rejected(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("rows.jsonl").open("a") as file:
        file.write('{"python_code": 1}\n')
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU) == 1
    assert "rows.jsonl:3: field $.python_code: expected str, got int" in capsys.readouterr().err
    assert not Path("ok.jsonl").exists()
    bad = Book(**{**vars(book), "rows": open_source("rows.jsonl"), "reject_bad": True})
    last = list(bad.tasks())[-1]
    assert isinstance(last, Unread)
    assert last.why == ("field $.python_code: expected str, got int", "the row cannot be read")


@pytest.mark.parametrize(
    ("status", "error", "truth"),
    [
        ("PASSED", "", "correct"),
        ("RUNTIME_ERROR", "ImportError: cannot import name 'grid' from 'torch._inductor.runtime.x' (a.py)", "inconclusive"),
        ("RUNTIME_ERROR", "ModuleNotFoundError: No module named 'torch._inductor.gone'", "inconclusive"),
        ("RUNTIME_ERROR", "AttributeError: module 'torch._C' has no attribute '_x'\nline 3", "inconclusive"),
        ("RUNTIME_ERROR", "RuntimeError: PyTorch was compiled without CUDA support", "inconclusive"),
        ("RUNTIME_ERROR", "AttributeError: 'AffineNew' object has no attribute 'scale'", "incorrect"),
        ("RUNTIME_ERROR", "ModuleNotFoundError: No module named 'pandas'", "incorrect"),
        ("RUNTIME_ERROR", "IndexError: ImportError: 'torch._C'", "incorrect"),
        ("INCORRECT_NUMERICAL", "ImportError: cannot import name 'grid' from 'torch._inductor'", "incorrect"),
        ("UNSUPPORTED", "libdevice", "inconclusive"),
        ("INFRA_ERROR", "crashed", "inconclusive"),
        ("COMPILE_ERROR", "sm_90: no", "incorrect"),
        ("HACK", "A1.no_kernel_launched", "hack"),
    ],
)  # fmt: skip
def test_what_this_machine_cannot_judge_is_not_called_wrong(status: Status, error: str, truth: str) -> None:
    found = told(Verdict("1", status, "interpreter", error=error))
    assert found.truth == truth
    assert bool(found.reason) == (truth != "correct")


@pytest.mark.parametrize(
    ("status", "tier", "shrunk", "truth"),
    [
        ("RUNTIME_ERROR", "interpreter", True, "inconclusive"),
        ("INCORRECT_NUMERICAL", "interpreter", True, "inconclusive"),
        ("INCORRECT_NUMERICAL", "interpreter", False, "incorrect"),
        ("INCORRECT_NUMERICAL", "gpu", True, "incorrect"),
        ("COMPILE_ERROR", "interpreter", True, "incorrect"),
        ("PASSED", "interpreter", True, "correct"),
    ],
)
def test_code_for_one_size_is_not_called_wrong_at_another(
    status: Status, tier: Tier, shrunk: bool, truth: str
) -> None:
    task = {"version": "shrunk", "shrunk": {"get_inputs:1:2": [64, 8]}} if shrunk else {"version": "original"}
    assert told(Verdict("1", status, tier, task=task)).truth == truth


def test_kernels_that_are_texts_for_inductor_are_not_called_wrong() -> None:
    texts = Flag("A9.async_compile", "soft")
    assert told(Verdict("1", "FORMAT_ERROR", "static", flags=[texts])).truth == "inconclusive"
    assert told(Verdict("1", "FORMAT_ERROR", "static")).truth == "incorrect"


def test_a_hard_flag_is_never_verified() -> None:
    soft, hard = Flag("A4.torch_does_most", "soft"), Flag("E1.tampers", "hard")
    assert told(Verdict("1", "PASSED", "gpu", flags=[soft])).truth == "correct"
    assert told(Verdict("1", "PASSED", "gpu", flags=[soft, hard])) == ("hack", "hack (PASSED): E1.tampers")


def test_a_licence_of_any_length_and_letters_fits_the_table() -> None:
    tally = Tally()
    for number in range(20):
        tally.judged("correct", Verdict("1", "PASSED", "gpu"), [f"\x1b[31m{number}" * 30, "MIT"], True)
    said = tally.render()
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 120
    assert "and 9 licences more: see the manifest" in said
    assert Tally().render() == "no rows"


MISTAKES = {
    "no output": (["rows.jsonl"], 2, "-o/--output"),
    "the source itself": (["rows.jsonl", "-o", "rows.jsonl"], 1, "is the source"),
    "the verdicts as the source": (["ok.verdicts.jsonl", "-o", "ok.jsonl"], 1, "where the verdicts go"),
    "no such source": (["none.jsonl", "-o", "ok.jsonl"], 1, "none.jsonl: no such file or folder"),
    "no licence": (["rows.jsonl", "-o", "ok.jsonl", "--licences", " , "], 2, "expected licences"),
    "an output that is no JSONL": (["rows.jsonl", "-o", "ok.parquet"], 1, "must end in .jsonl"),
    "a GPU where there is none": (
        ["rows.jsonl", "-o", "ok.jsonl", "--device", "cuda"],
        2,
        "there is none here",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, code, said = MISTAKES[name]
    monkeypatch.setattr("kernelmill.evaluate.evaluator.visible_gpus", list)
    for file in ("rows.jsonl", "ok.verdicts.jsonl"):
        write_rows(Path(file), ROWS[:1])
    before = Path("rows.jsonl").read_bytes()
    if name != "the verdicts as the source":
        Path("ok.verdicts.jsonl").unlink()
    assert mill(*arguments) == code
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
    assert Path("rows.jsonl").read_bytes() == before
    assert not Path("ok.jsonl").exists()


def test_verdicts_by_other_options_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(Path("rows.jsonl"), ROWS[10:11])
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU) == 0
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU, "--tf32") == 1
    assert "by other options" in capsys.readouterr().err
    assert mill("rows.jsonl", "-o", "ok.jsonl", *CPU, "--tf32", "--force") == 0


def test_rows_that_nobody_could_judge_are_still_owed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trouble(_: Evaluator, pair: Pair) -> Verdict:
        return Verdict(pair.id, "INFRA_ERROR", "interpreter", error="no new process")

    monkeypatch.setattr(Evaluator, "evaluate", trouble)
    write_rows(Path("rows.jsonl"), ROWS[:1])
    assert mill("rows.jsonl", "-o", "ok.jsonl", "--device", "cpu") == 3
    assert "exit code 3: 1 row INFRA_ERROR, not judged: the same command" in capsys.readouterr().err
