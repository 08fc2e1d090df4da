"""The flow from modules to a dataset: the config that ships, on a few small modules; and `synthesize` as a step of `run`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, command, read_rows
from tests.generate.synthesize.answers import PROSE, problem

CONFIG = ROOT / "configs/offline.toml"
STEPS = [
    "synthesize", "rate", "unique", "decontaminate", "specs", "strip", "lengths", "publish-kernels", "publish-specs",
]  # fmt: skip
SIGMOID = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.sigmoid(x * self.weight)

def get_inputs():
    return [torch.randn(24, 40)]

def get_init_inputs():
    return [40]
"""
CUBE = SIGMOID.replace("torch.sigmoid(x * self.weight)", "x * x * x - self.weight")
NOT_WRITABLE = SIGMOID.replace("torch.sigmoid(x * self.weight)", "x[: int(x.sum().item()) % 3 + 1]")
JOURNAL = Path("demo_outputs/synthesize.journal.sqlite")
Mill = Callable[..., Any]


def flow(folder: Path, **modules: str) -> str:
    """The shipped config with these problems in the place of its own."""
    (folder / "problems").mkdir()
    for number, (name, code) in enumerate(modules.items(), 1):
        (folder / "problems" / f"{number}_{name}.py").write_text(code, encoding="utf-8")
    text = CONFIG.read_text(encoding="utf-8")
    assert text.count('"bundled:problems"') == 1
    text = text.replace('"bundled:problems"', '"problems"\ndevice = "cpu"\nworkers = 1')
    (folder / "flow.toml").write_text(text, encoding="utf-8")
    return "flow.toml"


def record(folder: Path, name: str = "demo_outputs/run.json") -> dict[str, dict[str, Any]]:
    return {step["name"]: step for step in json.loads((folder / name).read_text())["steps"]}


def verdicts() -> dict[str, str]:
    """What the journal holds of judging, by key."""
    if not JOURNAL.exists():
        return {}
    connection = sqlite3.connect(f"file:{JOURNAL}?mode=ro", uri=True)
    try:
        return dict(connection.execute("SELECT key, value FROM facts WHERE key LIKE 'verdict:%'").fetchall())
    except sqlite3.OperationalError:
        return {}  # it is being made
    finally:
        connection.close()


def start_until(line: list[str], reached: Callable[[], bool]) -> subprocess.Popen[str]:
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not reached():
        assert process.poll() is None, "the run was over before it could be stopped"
        time.sleep(0.01)
    return process


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_modules_become_a_dataset_and_each_stage_takes_out_what_it_is_for(
    tmp_path: Path, mill_process: Mill
) -> None:
    held_out = read_rows(ROOT / "data/samples/evals.jsonl")[48]["info"]["python_code"]
    config = flow(
        tmp_path, Sigmoid=SIGMOID, Twin=f"{SIGMOID}\n# the same again\n", Unwritable=NOT_WRITABLE, HeldOut=held_out, Cube=CUBE
    )  # fmt: skip
    done = mill_process("run", config, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = record(tmp_path)
    assert [(name, step["status"]) for name, step in steps.items()] == [(name, "done") for name in STEPS]
    counts = {name: (step["rows_in"], step["rows_out"], step["rejected"]) for name, step in steps.items()}
    assert counts["synthesize"] == (5, 5, 0)
    assert counts["rate"] == (5, 4, 1)
    assert counts["unique"] == (4, 3, 1)
    assert counts["decontaminate"] == (3, 2, 1)
    assert {counts[name] for name in STEPS[4:]} == {(2, 2, 0)}
    kernels = read_rows(tmp_path / "demo_outputs/kernels.jsonl")
    assert [row["problem_name"] for row in kernels] == ["1_Sigmoid", "5_Cube"]
    assert all(row["verdict"]["verdict"] == "correct" and "@triton.jit" in row["answer"] for row in kernels)
    published = sorted((tmp_path / "demo_outputs/hub/kernels/data").glob("*.parquet"))
    assert sum(parquet.read_metadata(path).num_rows for path in published) == 2
    assert "kernelmill synthesize" in (tmp_path / "demo_outputs/hub/kernels/README.md").read_text()
    # The end is for people: the table, where things are, what to do now.
    tail = done.stdout[done.stdout.index("step  ") :]
    assert "file in demo_outputs" in tail
    assert "demo_outputs/hub/kernels  dataset: train" in tail
    assert tail.count(" -m kernelmill ") == 3

    written = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "demo_outputs").rglob("*") if path.is_file()
    }
    again = mill_process("run", config)
    assert again.returncode == 0
    assert {step["status"] for step in record(tmp_path).values()} == {"unchanged"}
    changed = {path.name for path, before in written.items() if path.stat().st_mtime_ns != before}
    assert changed <= {"run.json"}


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_kill_nine_in_the_step_and_ctrl_c_in_the_next_run_lose_nothing(
    tmp_path: Path, mill_process: Mill
) -> None:
    config = flow(
        tmp_path,
        Sigmoid=SIGMOID,
        Cube=CUBE,
        Sine=SIGMOID.replace("sigmoid", "sin"),
        Relu=SIGMOID.replace("sigmoid", "relu"),
    )
    line = command("run", config, "--until", "synthesize")
    killed = start_until(line, lambda: len(verdicts()) >= 1)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = verdicts()
    assert 1 <= len(before) < 3
    assert not Path("demo_outputs/run.json").exists()

    stopped = start_until(line, lambda: len(verdicts()) > len(before))
    stopped.send_signal(signal.SIGINT)
    out, err = stopped.communicate(timeout=240)
    assert stopped.returncode == 130, out + err
    assert [text for text in err.splitlines() if text.startswith("kernelmill: ")] == err.splitlines()[-1:]
    assert "Traceback" not in out + err
    assert record(tmp_path)["synthesize"]["status"] == "stopped"
    assert "Try next" not in out

    between = verdicts()
    done = mill_process("run", config, "--until", "synthesize", timeout=400)
    assert done.returncode == 0, done.stderr
    assert json.loads(Path("demo_outputs/evals.manifest.json").read_text())["judged"] == 4 - len(between)
    # What was judged stands as it was: nothing was judged again.
    assert {key: verdicts()[key] for key in before | between} == before | between
    assert len(verdicts()) == 4


def model_flow(folder: Path, url: str, more: str = "") -> str:
    problem(folder / "problems", "A", "B")
    (folder / "flow.toml").write_text(
        f"""
[run]
report = "out/run.json"
steps = [{{ stage = "synthesize", output = "out/evals.jsonl" }}]
[llm]
base_url = "{url}"
model = "fake"
[synthesize]
source = "problems"
device = "cpu"
{more}"""
    )
    return "flow.toml"


def test_a_step_of_synthesize_is_done_once_and_again_when_what_it_follows_from_has_changed(
    tmp_path: Path, mill: Mill
) -> None:
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        config = model_flow(tmp_path, endpoint.base_url)
        assert "would run: not done yet" in mill("run", config, "--dry-run").stdout
        assert endpoint.asked.total() == 0
        done = mill("run", config)
        assert done.returncode == 0, done.stderr
        assert endpoint.asked.total() == 2
        mill("run", config)
        assert record(tmp_path, "out/run.json")["synthesize"]["status"] == "unchanged"
        # A module is changed: its rollout alone is new.
        (tmp_path / "problems/2_B.py").write_text(SIGMOID)
        assert "would run: what it reads has changed" in mill("run", config, "--dry-run").stdout
        mill("run", config)
        assert endpoint.asked.total() == 3
        # Other settings, as keys of the step: they win over the table, and the sets of the table give way to a source.
        text = (tmp_path / config).read_text()
        (tmp_path / config).write_text(
            text.replace('"out/evals.jsonl" }', '"out/evals.jsonl", rollouts = 2 }')
        )
        assert "would run: its settings have changed" in mill("run", config, "--dry-run").stdout
        mill("run", config)
        assert len(read_rows(tmp_path / "out/evals.jsonl")) == 4
        assert endpoint.asked.total() == 5


def test_sets_of_problems_stand_in_the_table_and_each_counts(tmp_path: Path, mill: Mill) -> None:
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        sets = '[[synthesize.env]]\nid = "problems"\nnum_examples = 1\n[[synthesize.env]]\nid = "more"\n'
        config = model_flow(tmp_path, endpoint.base_url, sets)
        (tmp_path / config).write_text((tmp_path / config).read_text().replace('source = "problems"\n', ""))
        problem(tmp_path / "more", "C")
        assert mill("run", config).returncode == 0
        assert [row["task"] for row in read_rows(tmp_path / "out/evals.jsonl")] == ["problems", "more"]
        (tmp_path / "more/1_C.py").write_text(SIGMOID)
        assert "what it reads has changed" in mill("run", config, "--dry-run").stdout


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("limit = 32", "limits = 32", "unknown key synthesize.limits (did you mean limit?)"),
        ("limit = 32", "limit = 0", "limit: input should be greater than or equal to 1"),
        ('teacher = "inductor"', 'teacher = "nvcc"', "teacher: input should be 'inductor'"),
        ('{ stage = "synthesize",', '{ stage = "synthesize", turn = 2,', "unknown key turn (did you mean turns?)"),
        ('{ stage = "synthesize",', '{ stage = "synthesise",', "needs a stage (one of: synthesize, rate,"),
        ('"bundled:problems"', '"bundled:puzzles"', "bundled:puzzles: not among what ships"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_flow_is_one_line(
    tmp_path: Path, mill: Mill, before: str, after: str, told: str
) -> None:
    text = CONFIG.read_text(encoding="utf-8")
    assert text.count(before) == 1
    (tmp_path / "flow.toml").write_text(text.replace(before, after))
    done = mill("run", "flow.toml")
    assert done.returncode != 0
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_config_is_named_with_and_without_a_sign_but_once(tmp_path: Path, mill: Mill) -> None:
    for words in (
        ["configs/offline.toml"],
        ["@", "configs/offline.toml"],
        ["--config=configs/offline.toml"],
        [],
    ):
        done = mill("run", *words, "--dry-run")
        assert done.returncode == 0, done.stderr
        assert [line.split()[0] for line in done.stdout.splitlines()] == [*STEPS, "all"]
        assert len(done.stderr.splitlines()) == 1, "it says which config it took"
    (tmp_path / "a.toml").write_text("[run]\n")
    done = mill("run", "a.toml", "@", "b.toml")
    assert (done.returncode, "two configs, a.toml and b.toml" in done.stderr) == (2, True)
    done = mill("run", "c.toml")
    assert (done.returncode, "c.toml: cannot be read" in done.stderr) == (2, True)


def test_the_shipped_flow_names_the_steps_that_its_tables_and_commands_are_for() -> None:
    content = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    steps = content["run"]["steps"]
    assert [step.get("name", step["stage"]) for step in steps] == STEPS
    made = {step["output"] for step in steps if "output" in step}
    assert {step["source"] for step in steps if "source" in step} <= made
    assert len(content["run"]["next"]) == 3
