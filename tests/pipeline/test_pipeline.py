"""`kernelmill run`: what is done is not done again, what has changed is, and what fails leaves the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import evals_row, read_rows, write_rows

CONFIG = """
[run]
report = "out/run.json"
steps = [
    { stage = "unique" },
    { stage = "strip", name = "strip-all", source = "rows.jsonl", output = "out/all.jsonl" },
    { stage = "strip", source = "out/unique.jsonl", output = "out/plain.jsonl" },
    { stage = "publish" },
]
[unique]
source = "rows.jsonl"
output = "out/unique.jsonl"
[publish]
source = "out/plain.jsonl"
to = "folder:out/hub"
"""
STEPS = ["unique", "strip-all", "strip", "publish"]
Mill = Callable[..., Any]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(12)])
    path = tmp_path / "flow.toml"
    path.write_text(CONFIG)
    return path


def statuses(folder: Path, name: str = "out/run.json") -> dict[str, str]:
    return {step["name"]: step["status"] for step in json.loads((folder / name).read_text())["steps"]}


def test_the_first_run_does_everything_and_the_second_nothing(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    done = mill("run", "@", config.name)
    assert done.returncode == 0, done.stderr
    assert statuses(tmp_path) == dict.fromkeys(STEPS, "done")
    record = json.loads((tmp_path / "out/run.json").read_text())
    assert [(step["rows_in"], step["rows_out"]) for step in record["steps"]] == [(12, 12)] * 4
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.jsonl")}
    again = mill("run", "@", config.name)
    assert again.returncode == 0
    assert statuses(tmp_path) == dict.fromkeys(STEPS, "unchanged")
    assert {path: path.stat().st_mtime_ns for path in written} == written
    # The table still tells what there is.
    assert [line.split()[:4] for line in again.stdout.splitlines() if line.startswith("unique")] == [
        ["unique", "12", "12", "0"]
    ]


def test_a_changed_row_is_followed_through_all_that_it_goes_into(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    mill("run", "@", config.name)
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, 2.0) for n in range(13)])
    done = mill("run", "@", config.name)
    assert statuses(tmp_path) == dict.fromkeys(STEPS, "done")
    assert "--- unique: what it reads has changed" in done.stdout
    assert len(read_rows(tmp_path / "out/plain.jsonl")) == 13


def test_a_changed_setting_redoes_its_step_and_only_what_that_changes(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    mill("run", "@", config.name)
    config.write_text(
        CONFIG.replace('output = "out/unique.jsonl"', 'output = "out/unique.jsonl"\nby = "name"')
    )
    planned = mill("run", "@", config.name, "--dry-run").stdout
    assert "unique                      would run: its settings have changed" in planned
    assert "strip-all                   may run, after unique" in planned
    mill("run", "@", config.name)
    # By name the same rows are kept, so that what comes after has the same to read.
    assert statuses(tmp_path) == {
        "unique": "done", "strip-all": "unchanged", "strip": "unchanged", "publish": "unchanged",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_an_output_that_is_gone_or_was_changed_is_made_again(
    tmp_path: Path, config: Path, mill: Mill, damage: str
) -> None:
    mill("run", "@", config.name)
    data = next((tmp_path / "out/hub/data").glob("*.parquet"))
    for path in (tmp_path / "out/all.jsonl", data):
        path.unlink() if damage == "gone" else path.write_bytes(b"x" + path.read_bytes())
    done = mill("run", "@", config.name, "--until", "strip")
    assert statuses(tmp_path)["strip-all"] == "done", done.stdout + done.stderr
    assert f"out/all.jsonl {'is gone' if damage == 'gone' else 'has changed'}" in done.stdout
    assert len(read_rows(tmp_path / "out/all.jsonl")) == 12


def test_from_until_and_only_choose_steps_and_leave_the_others_as_they_are(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    assert mill("run", "@", config.name, "--until", "unique").returncode == 0
    assert statuses(tmp_path)["strip"] == "left out"
    assert not (tmp_path / "out/plain.jsonl").exists()
    mill("run", "@", config.name, "--from", "strip", "--until", "strip")
    assert statuses(tmp_path)["strip"] == "done"
    mill("run", "@", config.name, "--only", "strip,publish")
    assert statuses(tmp_path) == {
        "unique": "left out", "strip-all": "left out", "strip": "unchanged", "publish": "done",
    }  # fmt: skip
    # What was left out is still known.
    mill("run", "@", config.name)
    assert statuses(tmp_path) == {
        "unique": "unchanged", "strip-all": "done", "strip": "unchanged", "publish": "unchanged",
    }  # fmt: skip
    mill("run", "@", config.name, "--force", "--only", "unique")
    assert statuses(tmp_path)["unique"] == "done"


def test_a_step_that_fails_ends_the_run_and_the_next_run_goes_on_there(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    rows = [evals_row(n) for n in range(3)]
    rows[1]["completion"][0]["content"] = "no answer here"
    write_rows(tmp_path / "rows.jsonl", rows)
    done = mill("run", "@", config.name)
    assert done.returncode == 1
    assert "1 of 3 rows would be rejected" in done.stderr
    assert statuses(tmp_path) == {
        "unique": "done", "strip-all": "failed", "strip": "not reached", "publish": "not reached",
    }  # fmt: skip
    config.write_text(CONFIG + "\n[strip]\nmax_rejected = 0.5\n")
    assert mill("run", "@", config.name).returncode == 0
    assert statuses(tmp_path)["unique"] == "unchanged"
    assert statuses(tmp_path)["publish"] == "done"


def test_in_test_mode_steps_read_what_the_test_run_wrote_and_nothing_is_published(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    done = mill("run", "@", config.name, "--test-mode")
    assert done.returncode == 0, done.stderr
    assert len(read_rows(tmp_path / "out/plain.test.jsonl")) == 5
    assert statuses(tmp_path, "out/run.test.json")["publish"] == "left out"
    assert not (tmp_path / "out/hub").exists()
    assert not (tmp_path / "out/unique.jsonl").exists()
    assert not (tmp_path / "out/run.json").exists()


@pytest.mark.parametrize(
    ("content", "arguments", "told"),
    [
        ("[run]\nsteps = []\n", [], "[run] names no steps"),
        ("", [], "[run] names no steps"),
        ('[run]\nsteps = [{ stage = "polish" }]\n', [], "step 1 of [run] needs a stage"),
        (
            '[run]\nsteps = [{ stage = "strip" }, { stage = "strip" }]\n',
            [],
            "two steps of [run] are called strip",
        ),
        ('[run]\nsteps = [{ stage = "strip", colour = "red" }]\n', [], "colour"),
        ("[run]\nstep = []\n", [], "unknown key run.step (did you mean steps?)"),
        (CONFIG, ["--from", "rate"], "there is no step rate (there are: unique, strip-all, strip, publish)"),
        (CONFIG, ["--from", "publish", "--until", "unique"], "--from publish comes after --until unique"),
        (CONFIG, ["--only", "unique", "--from", "unique"], "leave them out"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, config: Path, mill: Mill, content: str, arguments: list[str], told: str
) -> None:
    config.write_text(content)
    done = mill("run", "@", config.name, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_record_that_is_not_ours_is_not_overwritten(tmp_path: Path, config: Path, mill: Mill) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/run.json").write_text('{"steps": 3}')
    done = mill("run", "@", config.name)
    assert done.returncode == 2
    assert "move it away" in done.stderr
    assert (tmp_path / "out/run.json").read_text() == '{"steps": 3}'


def test_what_publish_takes_from_beside_its_source_counts_too(
    tmp_path: Path, config: Path, mill: Mill
) -> None:
    mill("run", "@", config.name)
    assert (
        mill(
            "lengths", "out/plain.jsonl", "--tokenizer", "qwen-embedded", "--json", "out/plain.lengths.json"
        ).returncode
        == 0
    )
    done = mill("run", "@", config.name)
    assert "--- publish: what it reads has changed" in done.stdout
    (tmp_path / "out/unique.manifest.json").unlink()
    done = mill("run", "@", config.name)
    assert "--- unique: out/unique.manifest.json is gone" in done.stdout


def test_a_benchmark_whose_files_are_renamed_is_another_one(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(1)])
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/1_A.py").write_text(evals_row(1)["info"]["python_code"])
    (tmp_path / "flow.toml").write_text(
        '[run]\nreport = "run.json"\nsteps = [{ stage = "decontaminate", source = "rows.jsonl", output = "out.jsonl", against = ["bench"] }]\n'
    )
    assert mill("run", "@", "flow.toml").returncode == 0
    (tmp_path / "bench/1_A.py").rename(tmp_path / "bench/2_B.py")
    assert "what it reads has changed" in mill("run", "@", "flow.toml").stdout
    assert "2_B" in (tmp_path / "out.jsonl").read_text()


def test_test_mode_leaves_the_report_of_lengths_alone(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(9)])
    (tmp_path / "flow.toml").write_text(
        '[run]\nreport = "run.json"\nsteps = [{ stage = "lengths", source = "rows.jsonl", tokenizer = "qwen-embedded", json_path = "n.json" }]\n'
    )
    assert mill("run", "@", "flow.toml").returncode == 0
    before = (tmp_path / "n.json").read_bytes()
    assert mill("run", "@", "flow.toml", "--test-mode").returncode == 0
    assert (tmp_path / "n.json").read_bytes() == before
    assert (tmp_path / "n.test.json").exists()


def test_an_empty_choice_of_steps_is_a_mistake(config: Path, mill: Mill) -> None:
    for only in ("", ","):
        done = mill("run", "@", config.name, "--only", only)
        assert done.returncode == 2
        assert "there is no step" in done.stderr


def test_a_step_that_calls_its_source_by_a_word_is_skipped_when_that_file_is_unchanged(
    tmp_path: Path, mill: Mill
) -> None:
    (tmp_path / "outputs").mkdir()
    write_rows(tmp_path / "outputs/filtered_dataset.jsonl", [evals_row(1)])
    (tmp_path / "flow.toml").write_text('[run]\nreport = "run.json"\nsteps = [{ stage = "strip" }]\n')
    done = mill("run", "@", "flow.toml")
    assert done.returncode == 0, done.stderr
    mill("run", "@", "flow.toml")
    assert statuses(tmp_path, "run.json") == {"strip": "unchanged"}
    write_rows(tmp_path / "outputs/filtered_dataset.jsonl", [evals_row(2)])
    mill("run", "@", "flow.toml")
    assert statuses(tmp_path, "run.json") == {"strip": "done"}


ASKING = """
[run]
report = "out/run.json"
steps = [
    {{ stage = "unique", output = "out/unique.jsonl", source = "rows.jsonl" }},
    {{ stage = "rate", source = "out/unique.jsonl", output = "out/rated.jsonl" }},
    {{ stage = "specs", source = "rows.jsonl", output = "out/specs.jsonl" }},
    {{ stage = "strip", source = "out/rated.jsonl", output = "out/plain.jsonl" }},
]
[llm]
base_url = "{base_url}"
model = "fake"
[prices."fake"]
input = 1.0
output = 10.0
"""


def test_a_dry_run_shows_calls_and_cost_of_every_step_and_calls_nothing(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, 1.0 if n < 7 else 0.1) for n in range(12)])
    with FakeEndpoint() as endpoint:
        (tmp_path / "asking.toml").write_text(ASKING.format(base_url=endpoint.base_url))

        def planned() -> dict[str, str]:
            done = mill("run", "asking.toml", "--dry-run")
            assert done.returncode == 0, done.stderr
            return {line.split()[0]: line.split(maxsplit=1)[1] for line in done.stdout.splitlines()}

        first = planned()
        assert endpoint.asked.total() == 0
        assert first["unique"].endswith("; no calls")
        # What unique will leave is not known; more than the rows that it reads it cannot be.
        assert "would run: it reads what unique writes; at most 7 calls" in first["rate"]
        assert re.search(r"; 12 calls, \S+ tokens in, \S+ out, \$\d+\.\d+ to fake$", first["specs"])
        assert first["strip"].endswith("; no calls")
        assert "at most 19 calls" in first["all"]
        costs = [
            float(cost)
            for step in ("rate", "specs", "all")
            for cost in re.findall(r"\$([\d.]+)", first[step])
        ]
        assert costs[2] == pytest.approx(costs[0] + costs[1], abs=2e-4)
        assert mill("run", "asking.toml", "--until", "rate").returncode == 0
        then = planned()
        assert then["rate"] == "unchanged; no calls"
        assert "12 calls" in then["all"]
        assert not then["all"].startswith("at most")


def test_a_dry_run_says_how_many_calls_there_are_where_the_rows_are_yet_to_be_written(
    tmp_path: Path, mill: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n, 1.0) for n in range(4)])
    steps = '{ stage = "specs", source = "rows.jsonl", output = "s.jsonl" }, { stage = "rate", source = "s.jsonl", output = "r.jsonl" }'
    (tmp_path / "asking.toml").write_text(
        f'[run]\nreport = "run.json"\nsteps = [{steps}]\n[llm]\nmodel = "fake"\n'
    )
    done = mill("run", "asking.toml", "--dry-run")
    lines = done.stdout.splitlines()
    assert "; 4 calls, " in lines[0]
    assert lines[1].endswith("at most 4 calls to fake, unknown cost")
    assert "at most 8 calls" in lines[2]
    assert "[prices" in lines[2]


@pytest.mark.parametrize(("turns", "calls"), [(1, "4 calls"), (3, "at most 12 calls")])
def test_a_dry_run_counts_every_turn_of_a_rollout_and_says_that_it_may_be_fewer(
    turns: int, calls: str, tmp_path: Path, mill: Mill
) -> None:
    write_rows(
        tmp_path / "problems.jsonl", [{"python_code": evals_row(n)["info"]["python_code"]} for n in range(2)]
    )
    (tmp_path / "asking.toml").write_text(
        '[run]\nreport = "run.json"\nsteps = [{ stage = "synthesize" }, { stage = "rate", source = "e.jsonl", output = "r.jsonl" }]\n'
        '[llm]\nmodel = "fake"\n[prices."fake"]\ninput = 1.0\noutput = 10.0\n'
        f'[synthesize]\nsource = "problems.jsonl"\noutput = "e.jsonl"\nrollouts = 2\nturns = {turns}\n'
    )
    done = mill("run", "asking.toml", "--dry-run")
    assert done.returncode == 0, done.stderr
    asked, rated, total = done.stdout.splitlines()
    assert re.search(rf"; {calls}, \S+ tokens in, \S+ out, \$[\d.]+ to fake$", asked), asked
    assert rated.endswith("; at most 4 calls to fake, unknown cost")
    assert f"at most {4 * turns + 4} calls" in total
    own = mill("synthesize", "@", "asking.toml", "--dry-run").stdout
    assert f"calls: {calls.removesuffix(' calls')} to fake" in own
    assert ("estimated cost: at most $" in own) == (turns > 1)


def test_what_a_dry_run_calls_the_most_is_what_answers_that_are_never_right_cost(
    tmp_path: Path, mill: Mill
) -> None:
    write_rows(tmp_path / "problems.jsonl", [{"python_code": evals_row(0)["info"]["python_code"]}])
    with FakeEndpoint(lambda _: "```python\nclass Scale0New: pass\n```") as endpoint:
        line = [
            *("synthesize", "problems.jsonl", "-o", "e.jsonl", "--base-url", endpoint.base_url),
            *("--model", "fake", "--turns", 3, "--device", "cpu"),
        ]
        assert "calls: at most 3 to fake" in mill(*line, "--dry-run").stdout
        assert mill(*line).returncode == 0
        assert endpoint.asked.total() == 3
        assert "calls: 0 to fake" in mill(*line, "--dry-run").stdout
