"""A batch has a verdict for every row in the source's order, judges nothing twice, and goes on after whatever end."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.errors import BadRow, ConfigError, MillError, OutputError, SourceError
from kernelmill.evaluate import batch as module
from kernelmill.evaluate.batch import Done, PairBatch, run
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.pairs import read_pairs
from kernelmill.evaluate.progress import Now
from kernelmill.evaluate.verdict import Verdict
from tests.conftest import ROOT, read_rows, write_rows

REFERENCE = "class Model: ..."


class FakeEvaluator:
    """Judges by the candidate's text, in no time, and remembers whom."""

    tier = "interpreter"
    judged: list[str] = []  # noqa: RUF012
    at_once = most_at_once = 0
    hook: Callable[[Pair], None] = staticmethod(lambda pair: None)

    def __init__(self, options: Options, workers: int, traces: Path | None = None) -> None:
        pass

    def __enter__(self) -> FakeEvaluator:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    async def start(self) -> list[str]:
        return []

    def doing(self) -> Now:
        return Now()

    async def evaluate(self, pair: Pair) -> Verdict:
        kind = FakeEvaluator
        kind.judged.append(pair.candidate)
        kind.at_once += 1
        kind.most_at_once = max(kind.most_at_once, kind.at_once)
        try:
            await asyncio.sleep(0.02 if pair.candidate.startswith("slow") else 0)
            kind.hook(pair)
            return Verdict(pair.id, "HACK" if "hack" in pair.candidate else "PASSED", "interpreter")
        finally:
            kind.at_once -= 1


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeEvaluator]]:
    monkeypatch.setattr(module, "Evaluator", FakeEvaluator)
    reset()
    yield FakeEvaluator
    FakeEvaluator.hook = staticmethod(lambda pair: None)


def reset() -> None:
    FakeEvaluator.judged = []
    FakeEvaluator.at_once = FakeEvaluator.most_at_once = 0


def pair(name: object, candidate: str, **more: Any) -> dict[str, Any]:
    return {"id": str(name), "reference": REFERENCE, "candidate": candidate, **more}


def judge(source: Path = Path("pairs.jsonl"), output: Path = Path("out.jsonl"), **more: Any) -> Done:
    return run(
        PairBatch(source, output, **{"options": Options(timeout=5), "workers": 3, **more})  # type: ignore[arg-type]
    )


def test_verdicts_stand_in_the_sources_order_each_under_its_own_id() -> None:
    rows = [pair(n, "slow" if n == 0 else f"code {n}") for n in range(20)]
    write_rows(Path("pairs.jsonl"), rows)
    done = judge()
    found = read_rows(Path("out.jsonl"))
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    assert [Verdict.from_dict(row).status for row in found] == ["PASSED"] * 20
    assert (done.judged, done.written, done.summary.rows) == (20, True, 20)
    assert len({row["key"] for row in found}) == 20
    assert sorted(path.name for path in Path().iterdir()) == [".out.jsonl.lock", "out.jsonl", "pairs.jsonl"]


def test_the_same_content_is_judged_once_and_written_for_each_id() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"slow {n % 2}") for n in range(10)])
    assert judge().judged == 2
    assert Counter(FakeEvaluator.judged) == {"slow 0": 1, "slow 1": 1}
    assert [row["id"] for row in read_rows(Path("out.jsonl"))] == [str(n) for n in range(10)]


def test_no_more_pairs_are_judged_at_a_time_than_workers_and_none_is_read_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"slow {n}") for n in range(30)])
    ahead: list[int] = []
    read = 0

    def counted(*arguments: Any) -> Iterator[Pair]:
        nonlocal read
        read = 0
        for found in read_pairs(*arguments):
            read += 1
            if FakeEvaluator.judged:
                ahead.append(read - len(FakeEvaluator.judged))
            yield found

    monkeypatch.setattr(module, "read_pairs", counted)
    FakeEvaluator.hook = staticmethod(lambda pair: ahead.append(read - len(FakeEvaluator.judged)))
    judge(workers=4)
    assert FakeEvaluator.most_at_once == 4
    assert max(ahead[: len(ahead) - 30]) <= 4  # the last 30 are of the writing


unhurried = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@unhurried
@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), st.floats(0, 1), st.binary(max_size=3))
def test_wherever_the_journal_was_cut_only_what_it_lacks_is_judged_again(
    contents: list[str], share: float, garbage: bytes
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_rows(folder / "pairs.jsonl", [pair(n, text) for n, text in enumerate(contents)])
        whole, output = folder / "whole.jsonl", folder / "out.jsonl"
        judge(source, whole)
        keys = [row["key"] for row in read_rows(whole)]
        lines = dict(zip(keys, whole.read_bytes().splitlines(keepends=True), strict=True)).values()
        journal = b"".join(lines)[: int(share * sum(map(len, lines)))]
        torn = garbage.replace(b"\n", b"")
        (folder / "out.jsonl.journal.jsonl").write_bytes(journal + torn)
        kept = journal.count(b"\n")
        reset()
        done = judge(source, output)
        assert done.judged == len(FakeEvaluator.judged) == len(set(contents)) - kept
        assert output.read_bytes() == whole.read_bytes()
        assert not (folder / "out.jsonl.journal.jsonl").exists()


def test_our_own_trouble_costs_one_row_and_is_owed_again() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(5)])

    def fail(pair: Pair) -> None:
        if pair.id == "3":
            raise KeyError("status")

    FakeEvaluator.hook = staticmethod(fail)
    done = judge()
    rows = read_rows(Path("out.jsonl"))
    assert [row["verdict"] for row in rows] == ["correct"] * 3 + ["inconclusive", "correct"]
    assert rows[3]["status"] == "INFRA_ERROR"
    assert "KeyError: 'status' (test_batch.py:" in rows[3]["error"]
    assert rows[3]["rewards"]["default"] is None
    assert done.summary.statuses["INFRA_ERROR"] == 1
    reset()
    FakeEvaluator.hook = staticmethod(lambda pair: None)
    assert judge().judged == 1
    assert FakeEvaluator.judged == ["code 3"]
    assert [row["status"] for row in read_rows(Path("out.jsonl"))] == ["PASSED"] * 5


def test_a_journalled_infra_error_is_judged_again() -> None:
    write_rows(Path("pairs.jsonl"), [pair(0, "a"), pair(1, "b")])
    rows = [found.key(Options(timeout=5)) for found in read_pairs(Path("pairs.jsonl"))]
    stored = [Verdict(str(n), status, "static").to_dict() for n, status in ((0, "INFRA_ERROR"), (1, "HACK"))]  # type: ignore[arg-type]
    write_rows(
        Path("out.jsonl.journal.jsonl"), [row | {"key": key} for row, key in zip(stored, rows, strict=True)]
    )
    judge()
    assert FakeEvaluator.judged == ["a"]
    assert [row["status"] for row in read_rows(Path("out.jsonl"))] == ["PASSED", "HACK"]


def test_a_reference_that_cannot_be_used_is_a_verdict_and_is_not_judged_again() -> None:
    sources = {
        "at fault": "import no_such_package\ndef get_inputs(): return []\n",
        "wanting": "raise OSError(28, 'No space left on device')\ndef get_inputs(): return []\n",
    }
    candidate = (
        "import torch, triton\n@triton.jit\ndef k(x): pass\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n        k[(1,)](x)\n        return x\n"
    )
    rows = [{"id": name, "reference": code, "candidate": candidate} for name, code in sources.items()]
    write_rows(Path("pairs.jsonl"), rows)
    given = PairBatch(Path("pairs.jsonl"), Path("out.jsonl"), Options(device="cpu"), workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Evaluator", Evaluator)
        assert run(given).judged == 2
        first = {row["id"]: row for row in read_rows(Path("out.jsonl"))}
        assert [row["status"] for row in first.values()] == ["UNSUPPORTED", "INFRA_ERROR"]
        assert all(row["verdict"] == "inconclusive" for row in first.values())
        assert all(row["error"].startswith("the reference cannot be used: ") for row in first.values())
        assert first["at fault"]["feedback"].startswith("Not judged: the reference cannot be used.")
        assert run(given).judged == 1
        again = {row["id"]: row for row in read_rows(Path("out.jsonl"))}
    assert again["at fault"] == first["at fault"]


def test_a_complete_output_is_left_alone_unless_forced() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(3)])
    judge()
    before = Path("out.jsonl").stat().st_mtime_ns, Path("out.jsonl").stat().st_ino
    reset()
    done = judge()
    assert (done.judged, done.written, done.summary.rows) == (0, False, 3)
    assert (Path("out.jsonl").stat().st_mtime_ns, Path("out.jsonl").stat().st_ino) == before
    assert judge(force=True).judged == 3
    assert len(FakeEvaluator.judged) == 3


def test_rows_added_to_the_source_are_the_only_ones_judged() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(3)])
    judge()
    reset()
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in (9, 2, 1, 0)])
    assert judge().judged == 1
    assert FakeEvaluator.judged == ["code 9"]
    assert [row["id"] for row in read_rows(Path("out.jsonl"))] == ["9", "2", "1", "0"]


@pytest.mark.parametrize("kept", ["precious\n", '{"id": "1"}\n', '{"precious": NaN}\n', '{"torn'])
def test_what_is_no_file_of_verdicts_is_not_overwritten(kept: str) -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "a")])
    Path("out.jsonl").write_text(kept)
    with pytest.raises(OutputError, match=r"out.jsonl:1 is no verdict .*--force"):
        judge()
    assert Path("out.jsonl").read_text() == kept
    assert FakeEvaluator.judged == []
    judge(force=True)
    assert len(read_rows(Path("out.jsonl"))) == 1


def test_verdicts_of_other_pairs_or_options_are_not_overwritten() -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "a")])
    judge()
    before = Path("out.jsonl").read_bytes()
    with pytest.raises(OutputError, match="other options"):
        judge(options=Options(timeout=6))
    write_rows(Path("pairs.jsonl"), [pair(1, "b")])
    with pytest.raises(OutputError, match="another pair"):
        judge()
    assert Path("out.jsonl").read_bytes() == before


def test_the_reward_column_comes_and_goes_without_judging() -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "good"), pair(2, "hack")])
    judge()
    plain = Path("out.jsonl").read_bytes()
    reset()
    assert judge(reward="default").written
    assert [row["reward"] for row in read_rows(Path("out.jsonl"))] == [0.3, -1.0]
    judge(reward="fast_2")
    assert [row["reward"] for row in read_rows(Path("out.jsonl"))] == [None, 0.0]
    judge()
    assert Path("out.jsonl").read_bytes() == plain
    assert FakeEvaluator.judged == []
    with pytest.raises(ConfigError, match="did you mean default"):
        judge(reward="defualt")


BAD_ROWS = {
    "{": ("pairs.jsonl:2: not JSON", None),
    "[1]": ("pairs.jsonl:2: not a JSON object but a list", None),
    '{"candidate": "c"}': ("missing", "$.reference"),
    '{"reference": "r"}': ("missing", "$.candidate"),
    '{"reference": 1, "candidate": "c"}': ("expected a text, got a number", "$.reference"),
    '{"reference": "r", "candidate": null}': ("expected a text, got null", "$.candidate"),
    '{"reference": "r", "candidate": "c", "id": true}': ("expected a text, got a truth value", "$.id"),
    '{"reference": "r", "candidate": "c", "entry_point": {}}': ("got an object", "$.entry_point"),
    '{"a": ' * 100_000: ("pairs.jsonl:2: not JSON", None),
}


@pytest.mark.parametrize("line", BAD_ROWS, ids=lambda line: str(line)[:40])
def test_a_bad_row_is_one_line_with_its_place_before_anything_is_judged(line: str) -> None:
    Path("pairs.jsonl").write_text(f"{json.dumps(pair(1, 'a'))}\n{line}\n")
    with pytest.raises(BadRow) as found:
        judge()
    said, field = BAD_ROWS[line]
    assert said in str(found.value)
    assert found.value.where == "pairs.jsonl:2"
    assert found.value.field == field
    assert "\n" not in str(found.value)
    assert FakeEvaluator.judged == []
    assert not Path("out.jsonl").exists()


def test_pairs_may_be_compressed_lack_an_id_and_have_columns_of_their_own() -> None:
    lines = [
        json.dumps({"reference": "r", "candidate": "c", "mine": [1]}),
        "",
        json.dumps({"id": 7, "reference": "r", "candidate": "c", "entry_point": "Net"}),
        json.dumps({"id": "\ud800", "reference": "r\ud800", "candidate": "c"}),
    ]
    with gzip.open("pairs.jsonl.gz", "wt") as file:
        file.write("\n".join(lines))
    found = list(read_pairs(Path("pairs.jsonl.gz"), "Other"))
    assert [(one.id, one.entry_point) for one in found] == [("1", "Other"), ("7", "Net"), ("\ud800", "Other")]
    assert len(list(read_pairs(Path("pairs.jsonl.gz"), limit=2))) == 2
    judge(Path("pairs.jsonl.gz"))
    assert [row["id"] for row in read_rows(Path("out.jsonl"))] == ["1", "7", "\ud800"]
    assert not judge(Path("pairs.jsonl.gz")).written


def test_what_cannot_be_read_or_written_is_one_line() -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "a")])
    Path("torn.jsonl.gz").write_bytes(gzip.compress(Path("pairs.jsonl").read_bytes() * 1000)[:-20])
    Path("folder").mkdir()
    for source, output, said in (
        ("nowhere.jsonl", "out.jsonl", "nowhere.jsonl: no such file"),
        ("folder", "out.jsonl", "folder is not a file"),
        ("torn.jsonl.gz", "out.jsonl", "torn.jsonl.gz cannot be read"),
        ("pairs.jsonl", "folder", "folder is a folder"),
        ("pairs.jsonl", "pairs.jsonl", "pairs.jsonl is the source itself"),
        ("pairs.jsonl", "pairs.jsonl/out.jsonl", "cannot be written"),
        ("pairs.jsonl", "/proc/out.jsonl", "cannot be written"),
    ):
        with pytest.raises(MillError) as found:
            judge(Path(source), Path(output), force=True)
        assert said in str(found.value)
        assert "\n" not in str(found.value)
    assert len(read_rows(Path("pairs.jsonl"))) == 1


def test_a_source_that_changes_meanwhile_is_told() -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "a")])
    FakeEvaluator.hook = staticmethod(lambda _: write_rows(Path("pairs.jsonl"), [pair(1, "b")]) and None)  # type: ignore[func-returns-value]
    with pytest.raises(SourceError, match="was changed while it was judged"):
        judge()
    assert not Path("out.jsonl").exists()


def test_a_full_disk_is_one_line_and_what_is_judged_is_kept() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(3)])
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1])\n"
        "from tests.evaluate import test_batch as t\n"
        "t.module.Evaluator = t.FakeEvaluator\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: t.judge(workers=1)\n"
        "except t.OutputError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, ROOT], capture_output=True, text=True, timeout=240)
    assert "File too large; the same command goes on" in done.stdout, done.stderr
    assert not Path("out.jsonl").exists()
    kept = Path("out.jsonl.journal.jsonl").read_bytes().count(b"\n")
    assert 0 < kept < 3
    assert judge().judged == 3 - kept


SLOW_RUN = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from tests.evaluate import test_batch as t
async def evaluate(self, pair):
    with open("judged", "a") as file:
        file.write(pair.candidate + "\\n")
    await asyncio.sleep(0.01)
    return t.Verdict(pair.id, "PASSED", "interpreter")
t.FakeEvaluator.evaluate = evaluate
t.module.Evaluator = t.FakeEvaluator
try:
    t.judge(workers=2)
except t.MillError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def started() -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", SLOW_RUN, ROOT], stderr=subprocess.PIPE, text=True)
    journal, end = Path("out.jsonl.journal.jsonl"), time.monotonic() + 240
    before = journal.stat().st_size if journal.exists() else 0
    while not journal.exists() or journal.stat().st_size <= before:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    return process


def test_a_run_killed_at_any_moment_goes_on_and_judges_again_only_what_was_in_flight() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(300)])
    for delay in (0.0, 0.1, 0.2):
        process = started()
        time.sleep(delay)
        process.kill()
        process.communicate()
    assert not Path("out.jsonl").exists()
    assert judge().judged < 300
    judged = Counter(Path("judged").read_text().split("\n")[:-1]) + Counter(FakeEvaluator.judged)
    assert len(judged) == 300
    assert judged.total() - 300 <= 3 * 2
    assert [row["id"] for row in read_rows(Path("out.jsonl"))] == [str(n) for n in range(300)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_with_one_line_that_says_how_to_go_on(number: signal.Signals) -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(300)])
    process = started()
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 130
    kept = Path("out.jsonl.journal.jsonl").read_bytes().count(b"\n")
    last = said.splitlines()[-1]
    assert last == f"interrupted: {kept} of 300 are judged and kept; the same command resumes"
    assert not Path("out.jsonl").exists()
    assert judge().judged == 300 - kept


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_batch_whose_processes_still_start(number: signal.Signals) -> None:
    write_rows(Path("pairs.jsonl"), [pair(1, "a")])
    starts = "async def start(self):\n    open('starts', 'w').close()\n    await asyncio.sleep(100_000)\n"
    code = SLOW_RUN.replace(
        "t.module.Evaluator =", f"{starts}t.FakeEvaluator.start = start\nt.module.Evaluator ="
    )
    process = subprocess.Popen([sys.executable, "-c", code, ROOT], stderr=subprocess.PIPE, text=True)
    while not Path("starts").exists():
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=240)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "interrupted: 0 of 1 are judged and kept; the same command resumes"


def test_a_second_process_on_the_same_output_is_refused() -> None:
    write_rows(Path("pairs.jsonl"), [pair(n, f"code {n}") for n in range(300)])
    process = started()
    try:
        with pytest.raises(OutputError, match="another process is writing out"):
            judge()
        judge(output=Path("other.jsonl"))
    finally:
        process.kill()
        process.communicate()
    judge()


@pytest.mark.heavy
def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    """By the text alone, so that ten thousand rows take seconds."""

    def peak(rows: int) -> float:
        with Path("pairs.jsonl").open("w") as file:
            for n in range(rows):
                file.write(json.dumps(pair(n, f"# {n} {'x' * 12_000}")) + "\n")
        code = (
            "import sys, resource; from kernelmill.settings.commands import run_tool\n"
            "run_tool('evaluate', sys.argv[1:]); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        line = [sys.executable, "-c", code, "pairs.jsonl", "--tier", "static", "-o", f"{rows}.jsonl"]
        done = subprocess.run(line, check=True, capture_output=True, text=True)
        assert len(read_rows(Path(f"{rows}.jsonl"))) == rows
        return int(done.stdout.splitlines()[-1]) / 1024

    small, large = peak(100), peak(1500)  # 1 MB and 18 MB of pairs
    assert large < small + 6
