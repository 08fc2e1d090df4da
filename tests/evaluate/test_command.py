"""`kernelmill evaluate` as a person meets it: a verdict one can read, one line for every mistake, nothing needed but torch."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

import kernelmill.evaluate
from kernelmill.cli import _overview
from kernelmill.cli import main as mill_main
from kernelmill.evaluate import Evaluator, Pair, Verdict, command
from kernelmill.evaluate.command import describe
from kernelmill.evaluate.interpreter_gaps import UNSUPPORTED
from kernelmill.evaluate.verdict import Check, Flag
from kernelmill.flow import COMMANDS
from kernelmill.settings.commands import parser_of, run_tool
from tests.conftest import ROOT, read_rows, write_rows
from tests.evaluate.corpus import case
from tests.evaluate.verdicts import timed

main = partial(run_tool, "evaluate")
Mill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def files() -> None:
    """A reference and an honest candidate, alone and as rows."""
    one = case("X_ok_swish")
    Path("ref.py").write_text(one.reference)
    Path("cand.py").write_text(one.code)
    wrong = one.code.replace("x * tl.sigmoid(x)", "tl.sigmoid(x)")
    rows = [
        {"reference": one.reference, "candidate": code, "entry_point": "Swish"} for code in (one.code, wrong)
    ]
    write_rows(Path("pairs.jsonl"), rows)


ONE = ["--reference", "ref.py", "--candidate", "cand.py", "--entry-point", "Swish"]
MISTAKES: dict[str, tuple[list[str], int, str]] = {
    "nothing": ([], 2, "name a file of pairs, or --reference FILE and --candidate FILE"),
    "half of a pair": (["--reference", "ref.py"], 2, "--reference FILE and --candidate FILE"),
    "both": (["pairs.jsonl", *ONE], 2, "not both"),
    "a reference that is not there": (["--reference", "no.py", "--candidate", "cand.py"], 1, "no.py cannot be read (No such"),
    "a source that is not there": (["no.jsonl"], 1, "no.jsonl: no such file"),
    "an unknown flag": ([*ONE, "--tire", "gpu"], 2, "--tire"),
    "an unknown tier": ([*ONE, "--tier", "best"], 2, "invalid choice: 'best'"),
    "an unknown reward": ([*ONE, "--reward", "keving"], 2, "did you mean kevin?"),
    "no workers": (["pairs.jsonl", "--workers", "0"], 2, "--workers: 0: expected a whole number from 1 on"),
    "no time": ([*ONE, "--timeout", "0"], 2, "--timeout: 0: expected a number of seconds"),
    "endless time": ([*ONE, "--timeout", "nan"], 2, "expected a number of seconds"),
    "a wrong list of devices": ([*ONE, "--devices", "0;1"], 2, "--devices: 0;1: expected numbers, such as 0,1"),
    "devices without a GPU tier": ([*ONE, "--devices", "0", "--device", "cpu"], 2, "nothing here runs on one"),
    "a verdict that there is not": ([*ONE, "--fail-on", "hack,wrong"], 2, "--fail-on: wrong: expected some of correct, incorrect, hack, inconclusive"),
    "no verdict": ([*ONE, "--fail-on", ""], 2, "--fail-on: '': expected some of"),
    "JSON of many": (["pairs.jsonl", "--json"], 2, "--json is for one pair"),
    "a limit of one": ([*ONE, "--limit", "3"], 2, "--limit is for a file of pairs"),
    "a compressed output": (["pairs.jsonl", "-o", "out.jsonl.gz"], 2, "plain .jsonl"),
    "a file for a folder": ([*ONE, "--traces", "cand.py"], 1, "cand.py: no folder can be made there"),
    "a folder that is not there": ([*ONE, "-o", "no/out.jsonl"], 1, "no is not there"),
    "a GPU tier on the CPU": (["pairs.jsonl", "--tier", "gpu", "--device", "cpu"], 2, "tier gpu needs a GPU"),
}  # fmt: skip


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, code, said = MISTAKES[mistake]
    assert mill_main(["evaluate", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kernelmill: ")
    assert said in err
    assert err.count("\n") == 1
    assert not [path for path in Path().iterdir() if path.name.endswith("verdicts.jsonl")]


@pytest.mark.usefixtures("files")
def test_a_missing_gpu_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for arguments in (ONE, ["pairs.jsonl"]):
        assert mill_main(["evaluate", *arguments, "--device", "cuda"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "needs a GPU" in err
        assert err.count("\n") == 1


@pytest.mark.usefixtures("files")
def test_the_exit_code_is_3_for_the_verdicts_that_fail_on_names_and_for_no_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [json.loads(line) for line in Path("pairs.jsonl").read_text().splitlines()]
    write_rows(
        Path("pairs.jsonl"),
        [row | {"candidate": code} for row, code in zip(rows, ("def (:", "x = 1"), strict=True)],
    )
    Path("cand.py").write_text("def (:")
    for arguments, said in ((ONE, "1 incorrect"), (["pairs.jsonl", "--tier", "static"], "2 incorrect")):
        assert mill_main(["evaluate", *arguments]) == 0
        assert mill_main(["evaluate", *arguments, "--fail-on", "hack,inconclusive"]) == 0
        capsys.readouterr()
        assert mill_main(["evaluate", *arguments, "--fail-on", "hack,incorrect"]) == 3
        assert f"exit code 3: {said} (--fail-on hack,incorrect)" in capsys.readouterr().err


@pytest.mark.usefixtures("files")
def test_one_pair_says_from_the_beginning_what_is_done_and_which_probe_runs(mill_process: Mill) -> None:
    slowly = "def forward(self, x):\n        sum(range(2_000_000))"  # a quick candidate is done before a line is due
    Path("cand.py").write_text(Path("cand.py").read_text().replace("def forward(self, x):", slowly))
    done = mill_process("evaluate", *ONE, "--device", "cpu", "--fail-on", "incorrect,hack")
    assert done.returncode == 0, done.stderr
    lines = [re.sub(r" \(\d+:\d\d\)$", "", line) for line in done.stderr.splitlines()]
    assert re.fullmatch(r"cand\.py: (reads the text|interpreter, a process starts)", lines[0])
    assert [line for line in lines if line.startswith("cand.py: interpreter, probe ")]
    assert len(set(lines)) > 2
    assert done.stdout.startswith("correct (PASSED)")


@pytest.mark.usefixtures("files")
def test_the_first_line_of_one_pair_is_said_before_anything_is_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said_before: list[str] = []
    judged = Evaluator.evaluate

    async def evaluate(self: Evaluator, pair: Pair) -> Verdict:
        said_before.append(capsys.readouterr().err)
        return await judged(self, pair)

    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    Path("cand.py").write_text("def (:")
    assert main([*ONE, "--device", "cpu"]) == 0
    assert said_before == ["cand.py: reads the text (0:00)\n"]


@pytest.mark.usefixtures("files")
def test_rows_that_nobody_could_judge_are_no_pass_with_and_without_fail_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def trouble(_: Evaluator, pair: Pair) -> Verdict:
        return Verdict(pair.id, "INFRA_ERROR", "interpreter", error="no new process")

    line = ["evaluate", "pairs.jsonl", "--tier", "static", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "evaluate", trouble)
        for more in ([], ["--fail-on", "incorrect,hack"]):
            assert mill_main([*line, *more]) == 3
            said = capsys.readouterr().err
            assert "exit code 3: 2 rows INFRA_ERROR, not judged: the same command judges them again" in said
    assert mill_main([*line, "--fail-on", "incorrect,hack"]) == 0  # judged now: their text alone says nothing
    for text in (parser_of(COMMANDS["evaluate"]).format_help(), _overview()):
        words = " ".join(text.split())
        assert re.search(
            r"3 (rows still owed|some rows not finished|stopped early or incomplete)\b[^;]*run [^;]*again[^;]*verdict that (evaluate )?--fail-on names",
            words,
        )


def test_the_package_gives_its_names_without_torch() -> None:
    code = (
        "import sys, kernelmill.evaluate as e; print(sorted(e.__all__)); e.Options(), e.Verdict;"
        "import kernelmill.evaluate.command;"
        "print([m for m in ('torch', 'triton', 'numpy', 'rich', 'pydantic', 'msgspec') if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == ["['Evaluator', 'Options', 'Pair', 'Verdict', 'evaluate']", "[]"]
    assert all(hasattr(kernelmill.evaluate, name) for name in kernelmill.evaluate.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        kernelmill.evaluate.nothing  # noqa: B018


BARE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in ("kernelmill", "numpy", "torch", "triton"):
            raise ImportError(f"{name} is not installed on a bare machine")
sys.meta_path.insert(0, Refuse())
sys.argv[0] = "kernelmill.evaluate"
runpy.run_module("kernelmill.evaluate", run_name="__main__")
"""


def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
    """From a copy of the sources; neither this process nor the servers, which have its path, can import more than that."""
    tree, refused = Path("tree").resolve(), Path("refused").resolve()
    if not tree.exists():
        shutil.copytree(ROOT / "src", tree, ignore=shutil.ignore_patterns("__pycache__"))
        refused.mkdir()
        for name in ("rich", "pydantic", "msgspec", "psutil", "dotenv", "openai", "pyarrow", "yaml"):
            (refused / f"{name}.py").write_text("raise ImportError('not installed on a bare machine')")
    env = {**os.environ, "PYTHONPATH": f"{refused}:{tree}"}
    line = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=250, env=env)


@pytest.mark.usefixtures("files")
@pytest.mark.heavy
def test_it_runs_from_a_copied_tree_where_nothing_else_is_installed() -> None:
    """Both ways, to the end; a batch judges, says how far it is, sums up, and is done the second time."""
    line = ["pairs.jsonl", "-o", "out.jsonl", "--device", "cpu", "--workers", "2", "--reward", "correct"]
    done = bare(*line)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "2 to judge"
    assert re.search(r"^2 of 2 judged  in 0:\d\d  [\d.,]+/(s|min)$", done.stderr, re.MULTILINE)
    assert done.stderr.splitlines()[-1] == "2 rows in out.jsonl"
    assert "PASSED" in done.stdout
    rows = read_rows(Path("out.jsonl"))
    assert [(row["id"], row["schema"], row["reward"]) for row in rows] == [
        ("1", "1.1", 1.0),
        ("2", "1.1", 0.0),
    ]
    assert [row["verdict"] for row in rows] == ["correct", "incorrect"]
    again = bare(*line)
    assert again.returncode == 0
    assert "is complete: nothing to do" in again.stderr
    wrong = bare("pairs.jsonl", "--tier", "best")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1


@pytest.mark.usefixtures("files")
@pytest.mark.own_servers
@pytest.mark.heavy
def test_one_pair_as_json_is_one_row_on_standard_output_and_leaves_no_process(mill_process: Mill) -> None:
    scratch = Path("scratch").resolve()
    scratch.mkdir()
    line = [*ONE, "--device", "cpu", "--json", "--reward", "default", "-o", "row.jsonl"]
    done = mill_process("evaluate", *line, env={"TMPDIR": str(scratch)})
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert done.stderr == ""
    assert read_rows(Path("row.jsonl")) == [row]
    verdict = Verdict.from_dict(row)
    assert (verdict.id, verdict.status, verdict.tier) == ("cand.py", "PASSED", "interpreter")
    assert row["reward"] == row["rewards"]["default"] == 0.4
    assert list(scratch.iterdir()) == []
    # A server names its scratch folder on its command line, and so do those that it forks.
    assert [
        found.info["pid"]
        for found in psutil.process_iter(["pid", "cmdline"])
        if str(scratch) in str(found.info)
    ] == []


@pytest.mark.usefixtures("files")
def test_what_the_text_alone_decides_is_said_at_once_and_trouble_of_ours_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cand.py").write_text("def (:")
    assert main([*ONE, "--tier", "static"]) == 0
    assert capsys.readouterr().out.startswith("incorrect (PARSE_ERROR) at tier static, 0.0")

    async def trouble(pair: Pair, options: object, traces: object, quiet: bool) -> Verdict:
        return Verdict(pair.id, "INFRA_ERROR", "interpreter", error="no new process")

    monkeypatch.setattr(command, "_judged", trouble)
    assert main(ONE) == 1
    assert capsys.readouterr().out.startswith("inconclusive (INFRA_ERROR)")


def test_a_verdict_reads_as_what_it_is() -> None:
    verdict = timed(2.0, feedback="Correct.\nIt is \x1b[31mfast.")
    verdict.checks = [Check("static", "pass"), Check("seed_0", "fail"), Check("odd_shape", "skip")]
    verdict.flags = [Flag("C14.shape_specialised", "soft")]
    verdict.env["sandbox_missing"] = ["landlock: not there"]
    verdict.cost["wall_s"] = 1.25
    said = describe(verdict, verdict.to_dict() | {"reward": None})
    assert "\x1b" not in said
    lines = said.splitlines()
    assert lines[0] == "correct (PASSED) at tier gpu_timed, 1.25 s"
    assert "  checks    1 pass, 1 fail, 1 skip: seed_0" in lines
    assert "  flag      C14.shape_specialised (soft)" in lines
    assert "  reward    none (masked)" in lines
    assert "  sandbox   lacks landlock: not there" in lines
    assert any(line.startswith("  time      ") and "speed-up 2.00" in line for line in lines)
    assert lines[-2:] == ["Correct.", "It is \\x1b[31mfast."]


def test_the_page_has_the_programs_own_limits() -> None:
    text = (ROOT / "docs/evaluate.md").read_text(encoding="utf-8")
    table = dict(
        re.findall(r"^\| `([a-z0-9_ ]+)` \| (.+) \|$", text.split("## What it does not do")[1], re.MULTILINE)
    )
    assert table == UNSUPPORTED


def test_doctor_says_what_the_evaluator_can_do_here_without_importing_torch(mill_process: Mill) -> None:
    code = (
        "import sys; from kernelmill import doctor; doctor._gpu = lambda: doctor.Finding('GPU', 'no', '');"
        "doctor.main(doctor.DoctorSettings(json=True)); print([m for m in ('torch', 'triton') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "[]"
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert {"isolation", "evaluate", "interpreter"} <= found.keys()
    assert all(name in found["interpreter"]["detail"] for name in UNSUPPORTED)
    assert "static" in found["evaluate"]["detail"] or "all tiers" in found["evaluate"]["detail"]


@pytest.mark.usefixtures("files")
def test_a_program_is_written_as_it_was_run_and_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ONE, "--traces", "programs/new", "--device", "cpu", "--json"]) == 0
    key = json.loads(capsys.readouterr().out)["key"].removeprefix("sha256:")[:8]
    program = json.loads(Path(f"programs/new/cand.py-{key}.json").read_text())
    (launch,) = [step for step in program["steps"] if "launch" in step]
    kernel = program["kernels"][launch["launch"]]
    assert kernel["text"] in Path("cand.py").read_text()
    text = Path(f"programs/new/cand.py-{key}.txt").read_text().splitlines()
    (line,) = [one for one in text if one.startswith("launch ")]
    assert line.startswith(f"launch {launch['launch']}, grid {tuple(launch['grid'])}: ")
    assert all(f"{name}=" in line for name in launch["args"])
