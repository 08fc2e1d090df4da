"""The command line as a person meets it: quick help, one clear line for every mistake, nothing overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernelmill.base.rows import Difficulty, EvalsRow
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, command, evals_row, read_rows, write_rows

Mill = Callable[..., subprocess.CompletedProcess[str]]


class FilteredRow(EvalsRow, kw_only=True):
    """An evals row that `rate` kept."""

    difficulty: Difficulty
    evaluation_raw: str
    rater: str


def test_help_loads_nothing_but_itself_and_a_little_of_the_standard_library() -> None:
    """That is what makes it quick. Counted, not timed: a second is another one on a busy machine."""
    code = (
        "import sys; before = set(sys.modules); import kernelmill, kernelmill.cli; kernelmill.cli.main(['--help']);"
        "print(*(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = said.splitlines()[-1].split()
    packages = {name.partition(".")[0] for name in loaded}
    assert packages - sys.stdlib_module_names == {"kernelmill"}
    assert len([name for name in loaded if name.startswith("kernelmill.")]) <= 10
    assert len(loaded) <= 100, "each further module is read from the disk and run"


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """An output of an earlier run, which no mistake may touch."""
    path = tmp_path / "out" / "rows.jsonl"
    path.parent.mkdir()
    path.write_text("precious\n")
    return path


def spoil(row: dict[str, Any], **change: Any) -> str:
    return json.dumps({key: value for key, value in (row | change).items() if value is not ...})


MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "a missing key": (["rate", "good.jsonl"], ["no key for https://", "PRIME_API_KEY"]),
    "a wrong path": (["rate", "nowhere.jsonl", "--rater", "static"], ["nowhere.jsonl", "no such file"]),
    "an unknown config key": (["rate", "@", "bad.toml"], ["bad.toml", "rate.treshold", "did you mean threshold"]),
    "an unknown flag": (["rate", "good.jsonl", "--treshold", "1"], ["--treshold"]),
    "an unknown command": (["rat"], ["unknown command rat", "did you mean rate"]),
    "a bad value": (["rate", "good.jsonl", "--threshold", "high"], ["--threshold", "number", "high"]),
    "a bad choice": (["rate", "good.jsonl", "--rater", "magic"], ["--rater", "llm", "static"]),
    "a torn line": (["rate", "torn.jsonl", "--rater", "static"], ["torn.jsonl:2", "not a JSON object"]),
    "a null reward": (["rate", "null.jsonl", "--rater", "static"], ["null.jsonl:2", "$.reward", "expected float, got null"]),
    "a missing column": (["rate", "column.jsonl", "--rater", "static"], ["column.jsonl:2", "$.info", "missing"]),
    "a wrong address": (["rate", "good.jsonl", "--base-url", "localhost:8000"], ["--base-url", "expected http"]),
    "a missing config file": (["rate", "@", "nowhere.toml"], ["nowhere.toml", "cannot be read"]),
    "@ without a file": (["rate", "@"], ["@ needs a config file"]),
    "a budget without a price": (["rate", "good.jsonl", "--base-url", "http://127.0.0.1:9/v1", "--max-cost", "1"], ["--price"]),
    "a prompt that is not there": (["rate", "good.jsonl", "--base-url", "http://127.0.0.1:9/v1", "--prompt", "no.md"], ["no.md"]),
    "a prompt with an unknown name": (
        ["rate", "good.jsonl", "--base-url", "http://127.0.0.1:9/v1", "--prompt", "bad.md"],
        ["bad.md", "'modul' is undefined", "module_name, python_code"],
    ),
    "a journal that is none": (["rate", "good.jsonl", "--rater", "static", "--journal", "good.jsonl"], ["not a journal"]),
    "the source as output": (["rate", "out/rows.jsonl", "--rater", "static"], ["out/rows.jsonl is the source"]),
    "the journal among the outputs": (
        ["rate", "good.jsonl", "--rater", "static", "--journal", "out/rows.rejected.jsonl"], ["is the journal"]
    ),
    "a journal that is a folder": (["rate", "good.jsonl", "--rater", "static", "--journal", "out"], ["out is a folder"]),
    "a journal without a name": (["rate", "good.jsonl", "--rater", "static", "--journal", ""], ["is a folder"]),
    "a config that is not UTF-8": (["rate", "@", "latin.toml"], ["latin.toml", "not valid TOML"]),
    "a manifest without settings": (["rate", "@", "empty.json"], ["empty.json", "not the manifest of a rate run"]),
    "a manifest that is a list": (["rate", "@", "list.json"], ["list.json", "not the manifest of a rate run"]),
    "a threshold that is no number": (["rate", "good.jsonl", "--threshold", "nan"], ["--threshold", "finite"]),
    "a time without end": (["rate", "good.jsonl", "--trace-timeout", "inf"], ["--trace-timeout", "finite"]),
    "a body of ours": (["rate", "@", "body.toml"], ["extra_body may not set messages"]),
    "an empty module": (["specs", "column.jsonl", "--writer", "static"], ["column.jsonl:2", "$.python_code", "missing"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_line_and_overwrites_nothing(
    tmp_path: Path, mill: Mill, precious: Path, mistake: str
) -> None:
    row = evals_row(1)
    good = spoil(row)
    (tmp_path / "good.jsonl").write_text(good + "\n")
    (tmp_path / "torn.jsonl").write_text(good + "\n" + good[: len(good) // 2])
    (tmp_path / "null.jsonl").write_text(good + "\n" + spoil(row, reward=None) + "\n")
    (tmp_path / "column.jsonl").write_text(good + "\n" + spoil(row, info=...) + "\n")
    (tmp_path / "bad.toml").write_text("[rate]\ntreshold = 1\n")
    (tmp_path / "bad.md").write_text("{{ modul }}")
    (tmp_path / "latin.toml").write_bytes("# é".encode("latin-1"))
    (tmp_path / "empty.json").write_text('{"stage": "rate", "config": null}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "body.toml").write_text("[llm.sampling.extra_body]\nmessages = []\n")
    arguments, expected = MISTAKES[mistake]
    stage = arguments[0] in ("rate", "specs")
    done = mill(*arguments, *(["-o", str(precious)] if stage else []))
    lines = [line for line in done.stderr.splitlines() if line.startswith("kernelmill:")]
    assert done.returncode not in (0, 141)
    assert len(lines) == 1, done.stderr
    assert done.stderr.splitlines()[-1] == lines[0]
    assert "Traceback" not in done.stderr
    for part in expected:
        assert part in lines[0]
    assert precious.read_text() == "precious\n"
    assert [p.name for p in precious.parent.iterdir() if p.name.endswith((".tmp", ".manifest.json"))] == []


def test_bad_rows_are_found_before_anything_is_paid(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [*(evals_row(n) for n in range(50)), evals_row(50, reward=None)])
    with FakeEndpoint() as endpoint:
        done = mill("rate", "rows.jsonl", "-o", "out.jsonl", "--base-url", endpoint.base_url)
        assert done.returncode == 1
        assert "rows.jsonl:51: field $.reward" in done.stderr
        assert endpoint.asked.total() == 0


def test_bad_rows_can_be_rejected_instead(tmp_path: Path, mill: Mill) -> None:
    good = json.dumps(evals_row(1))
    (tmp_path / "rows.jsonl").write_text(
        f"{good}\n{good[:100]}\n{json.dumps(evals_row(2, reward=None))}\n[1]\n"
    )
    done = mill(
        "rate", "rows.jsonl", "-o", "out.jsonl", "--rater", "static", "--no-trace", "--on-bad-row", "reject"
    )
    assert done.returncode == 0, done.stderr
    assert [row["example_id"] for row in read_rows(tmp_path / "out.jsonl")] == [1]
    rejected = read_rows(tmp_path / "out.rejected.jsonl")
    assert [row["where"] for row in rejected] == ["rows.jsonl:2", "rows.jsonl:3", "rows.jsonl:4"]
    assert rejected[0]["text"] == good[:100].strip()
    assert rejected[1]["row"]["reward"] is None
    assert "rejected    3  the row cannot be read" in done.stdout


def test_test_mode_takes_five_samples_and_writes_beside_the_real_output(
    tmp_path: Path, mill: Mill, precious: Path
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, reward=0.1 if n < 3 else 1.0) for n in range(20)])
    with FakeEndpoint() as endpoint:
        done = mill(
            "rate", "rows.jsonl", "-o", precious, "--base-url", endpoint.base_url, env={"TEST_MODE": "true"}
        )
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 5
    assert precious.read_text() == "precious\n"
    assert [row["example_id"] for row in read_rows(precious.with_name("rows.test.jsonl"))] == [3, 4, 5, 6, 7]
    assert "test mode" in done.stderr


def test_dry_run_says_what_would_be_asked_and_leaves_no_trace(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, reward=0.5 if n == 0 else 1.0) for n in range(10)])
    with FakeEndpoint() as endpoint:
        done = mill(
            "rate",
            "rows.jsonl",
            "-o",
            "out/x.jsonl",
            "--base-url",
            endpoint.base_url,
            "--dry-run",
            "--price",
            "1,10",
        )
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 0
    assert "calls: 9 to openai/gpt-5.2" in done.stdout
    assert "estimated tokens:" in done.stdout
    assert "estimated cost: $0.0" in done.stdout
    assert evals_row(1)["info"]["python_code"] in done.stdout
    assert not (tmp_path / "out").exists()


def test_dry_run_counts_only_what_is_not_answered_yet(tmp_path: Path, mill: Mill) -> None:
    source = write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(4)])
    with FakeEndpoint() as endpoint:
        line = ("rate", "rows.jsonl", "-o", "out/x.jsonl", "--base-url", endpoint.base_url)
        assert mill(*line).returncode == 0
        write_rows(source, [evals_row(n) for n in range(6)])
        assert "calls: 2 to" in mill(*line, "--dry-run").stdout


def test_the_output_is_the_input_with_three_columns_more(tmp_path: Path, mill: Mill) -> None:
    lines = [json.dumps(evals_row(n), separators=(",", ": "), ensure_ascii=False) for n in range(3)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    with FakeEndpoint() as endpoint:
        assert mill("rate", "rows.jsonl", "-o", "out.jsonl", "--base-url", endpoint.base_url).returncode == 0
    for before, after in zip(lines, (tmp_path / "out.jsonl").read_text().splitlines(), strict=True):
        msgspec.json.decode(after, type=FilteredRow)
        assert after.startswith(before[:-1] + ',"difficulty":"')
        assert list(json.loads(after))[-3:] == ["difficulty", "evaluation_raw", "rater"]


def test_a_run_can_be_repeated_from_its_own_manifest(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, reward=n / 10) for n in range(10)])
    first = mill(
        "rate", "rows.jsonl", "-o", "a/x.jsonl", "--rater", "static", "--no-trace", "--threshold", "0.35"
    )
    assert first.returncode == 0, first.stderr
    again = mill("rate", "@", "a/x.manifest.json", "-o", "b/x.jsonl")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "a/x.jsonl").read_bytes() == (tmp_path / "b/x.jsonl").read_bytes()
    assert len(read_rows(tmp_path / "b/x.jsonl")) == 6


def test_compare_prints_the_table_and_kappa(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(12)])
    with FakeEndpoint() as endpoint:
        done = mill("rate", "rows.jsonl", "--base-url", endpoint.base_url, "--compare", "--no-trace")
    assert done.returncode == 0, done.stderr
    assert "rated by both: 12 rows" in done.stdout
    assert "Cohen's kappa: 0.000" in done.stdout  # the static rater says low throughout
    assert not (tmp_path / "outputs/filtered_dataset.jsonl").exists()


def test_the_journal_command_totals_lists_and_exports(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(3)])
    with FakeEndpoint() as endpoint:
        assert mill("rate", "rows.jsonl", "--base-url", endpoint.base_url, "--price", "1,10").returncode == 0
    totals = mill("journal")
    assert "rate" in totals.stdout
    assert "$0.00" in totals.stdout
    assert mill("journal", "list", "--last", "2").stdout.count("Rated by its hash") == 2
    assert mill("journal", "export", "-o", "calls.jsonl").returncode == 0
    calls = read_rows(tmp_path / "calls.jsonl")
    assert [call["request"]["model"] for call in calls] == ["openai/gpt-5.2"] * 3
    assert calls[0]["response"]["choices"][0]["finish_reason"] == "stop"
    missing = mill("journal", "totals", "nothing.sqlite")
    assert missing.returncode == 1
    assert "no such journal" in missing.stderr


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("filter_and_enrich_by_difficulty.py", "outputs/filtered_dataset.jsonl"),
        ("generate_prompts.py", "outputs/synthetic_prompts.jsonl"),
    ],
)
def test_the_old_commands_work_by_path_and_by_environment(
    tmp_path: Path, mill: Mill, script: str, output: str
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(3)])
    (tmp_path / ".env").write_text("DATASET_PATH=rows.jsonl\nKERNELMILL_SOURCE=rows.jsonl\n")
    option = "--rater" if script.startswith("filter") else "--writer"
    line = [sys.executable, str(ROOT / "scripts" / script), option, "static"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(read_rows(tmp_path / output)) == 3


def test_doctor_names_what_is_here_and_what_to_do_about_the_rest(mill: Mill) -> None:
    done = mill("doctor", "--json", env={"PRIME_API_KEY": "sk-secret-value"})
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert {"torch", "triton", "GPU", "PRIME_API_KEY", "HF_TOKEN", "tokenizer", "isolation"} <= set(found)
    assert found["PRIME_API_KEY"]["state"] == "yes"
    assert found["HF_TOKEN"]["state"] == "no"
    assert found["HF_TOKEN"]["remedy"]
    assert (
        "sk-secret-value" not in done.stdout + mill("doctor", env={"PRIME_API_KEY": "sk-secret-value"}).stdout
    )


def test_brackets_in_names_and_texts_are_shown_as_they_are(tmp_path: Path, mill: Mill) -> None:
    folder = tmp_path / "a [bold] b [/red]"
    folder.mkdir(parents=True)
    write_rows(folder / "rows.jsonl", [evals_row(0, answer="[/bold] text [red]")])
    done = mill("rate", folder / "rows.jsonl", "-o", folder / "out.jsonl", "--rater", "static", "--no-trace")
    assert done.returncode == 0, done.stderr
    assert "a [bold] b [/red]/out.jsonl" in done.stdout
    shown = mill("show", folder / "rows.jsonl", "--columns", "answer")
    assert "[/bold] text [red]" in shown.stdout


def test_show_prints_rows_and_names_a_column_that_is_not_there(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(5)])
    done = mill("show", "rows.jsonl", "--from", "1", "-n", "2", "--columns", "info.module_name,reward")
    assert done.returncode == 0, done.stderr
    assert "Scale1" in done.stdout
    assert "Scale2" in done.stdout
    assert "Scale3" not in done.stdout
    wrong = mill("show", "rows.jsonl", "--columns", "difficulty")
    assert wrong.returncode == 2
    assert "no column difficulty" in wrong.stderr


def test_a_wrong_output_leaves_nothing_behind(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    for output in ("new/o.json", "new/.jsonl"):
        assert mill("rate", "rows.jsonl", "-o", output, "--rater", "static").returncode == 1
    assert mill("rate", "missing.jsonl", "-o", "new/o.jsonl", "--rater", "static").returncode == 1
    assert not (tmp_path / "new").exists()


def test_a_home_folder_is_found_in_every_path(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    done = mill(
        "rate",
        "rows.jsonl",
        "-o",
        "~/o.jsonl",
        "--rater",
        "static",
        "--no-trace",
        env={"HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "home" / "o.jsonl").exists()


def test_a_model_may_be_called_by_an_at_sign(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint() as endpoint:
        assert (
            mill(
                "rate", "rows.jsonl", "--model", "@cf/meta/llama", "--base-url", endpoint.base_url
            ).returncode
            == 0
        )
        assert endpoint.seen[0].body["model"] == "@cf/meta/llama"


def test_a_terminal_that_knows_no_letters_shows_their_codes(tmp_path: Path, mill_process: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0, answer="größe 漢字")])
    done = mill_process("show", "rows.jsonl", "--columns", "answer", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "\\xf6" in done.stdout


def test_nobody_watching_does_not_stop_the_work(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(60)])
    with FakeEndpoint(latency=0.2) as endpoint:
        line = " ".join(
            command("rate", "rows.jsonl", "-o", "o.jsonl", "--base-url", endpoint.base_url, "-c", 4)
        )
        subprocess.run(f"{line} 2>&1 | true", shell=True, cwd=tmp_path, timeout=240, check=False)
        assert endpoint.asked.total() == 60
    assert len(read_rows(tmp_path / "o.jsonl")) == 60


def test_dry_run_leaves_nothing_beside_the_journal(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with FakeEndpoint() as endpoint:
        line = ("rate", "rows.jsonl", "-o", "out/o.jsonl", "--base-url", endpoint.base_url)
        assert mill(*line).returncode == 0
        before = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert mill(*line, "--dry-run").returncode == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before


def test_a_trace_that_took_too_long_is_tried_again_by_the_next_run(tmp_path: Path, mill: Mill) -> None:
    row = evals_row(0)
    row["info"]["python_code"] = row["info"]["python_code"].replace(
        "import torch\n", "import time\nimport torch\n", 1
    )
    row["info"]["python_code"] = row["info"]["python_code"].replace(
        "return x *", "time.sleep(2)\n        return x *"
    )
    write_rows(tmp_path / "rows.jsonl", [row])
    line = ("rate", "rows.jsonl", "-o", "o.jsonl", "--rater", "static", "--trace-timeout")
    assert mill(*line, "0.5").returncode == 0
    assert "not traced (timeout" in read_rows(tmp_path / "o.jsonl")[0]["evaluation_raw"]
    assert mill(*line, "200").returncode == 0
    assert "traced on fake tensors" in read_rows(tmp_path / "o.jsonl")[0]["evaluation_raw"]


def test_compare_tells_what_is_owed(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(6)])
    with FakeEndpoint(script=["500"] * 3) as endpoint:
        line = (
            "rate",
            "rows.jsonl",
            "--base-url",
            endpoint.base_url,
            "--compare",
            "--no-trace",
            "--server-retries",
            "0",
            "-c",
            "1",
        )
        done = mill(*line)
        assert done.returncode == 3
        assert "3 questions could not be answered" in done.stderr
        assert "rated by both: 3 rows" in done.stdout
        assert mill(*line).returncode == 0


def test_doctor_names_the_extras_whole(mill: Mill) -> None:
    code = "import sys; sys.modules['rensa'] = None\nfrom kernelmill import doctor\ndoctor.importlib.util.find_spec = lambda name: None\ndoctor.main(doctor.DoctorSettings())"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    ).stdout
    assert "kernelmill[eval]" in said
    assert "kernelmill[hub]" in said
