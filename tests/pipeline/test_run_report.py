"""The end of a run as people see it: the table, the places, and commands that can be copied."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelmill.pipeline.run_report import Record, Step, own_name, show

STEPS = [
    Step("rate", "rate", "done", outputs={"out/rated.jsonl": "", "out/rated.manifest.json": ""}, rows_in=1200, rows_out=7, rejected=1193, seconds=61),
    Step("strip", "strip", "unchanged", outputs={"elsewhere/plain.jsonl": ""}, rows_in=7, rows_out=7, seconds=5),
    Step("publish", "publish", "done", outputs={"out/hub/a/README.md": "", "out/hub/a/data/x.parquet": ""}, results={"out/hub/a": "dataset: train 7"}),
    Step("specs", "specs", "stopped", outputs={"out/old.jsonl": ""}, seconds=3),
]  # fmt: skip


def shown(capsys: pytest.CaptureFixture[str], steps: list[Step], *commands: str) -> list[str]:
    show(Record(1, steps=steps), Path("out/run.json"), list(commands))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_a_step_has_its_counts_its_time_and_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    lines = {line.split()[0]: line.split()[1:] for line in shown(capsys, STEPS) if line}
    assert lines["step"] == ["rows", "in", "out", "rejected", "time", "file", "in", "out"]
    assert lines["rate"] == ["1,200", "7", "1,193", "1:01", "done", "rated.jsonl"]
    assert lines["strip"] == ["7", "7", "0", "unchanged", "elsewhere/plain.jsonl"]
    assert lines["publish"] == ["0:00", "done", "hub/a"]
    # What it wrote before is not what it was stopped in.
    assert lines["specs"] == ["0:03", "stopped"]
    assert lines["all"] == ["1:04"], "what was not run took no time"
    assert lines["out/hub/a"] == ["dataset:", "train", "7"]


def test_a_cost_has_a_column_only_where_there_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("cost" in line for line in shown(capsys, STEPS))
    paid = shown(capsys, [*STEPS, Step("more", "rate", "done", cost_usd=None)])
    assert any(" cost " in line for line in paid)
    assert any("unknown" in line for line in paid)


def test_a_long_path_stays_in_one_piece_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{'deep/' * 20}rows.jsonl"
    assert any(path in line for line in shown(capsys, [Step("rate", "rate", "done", outputs={path: ""})]))


def test_commands_are_shown_as_the_program_was_called(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for place in ("bin/kernelmill", "kernelmill"):
        (tmp_path / place).write_text("#!/bin/sh\n")
        (tmp_path / place).chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    for called, name in (
        ("bin/kernelmill", "bin/kernelmill"),
        (f"{tmp_path}/bin/kernelmill", "bin/kernelmill"),
        ("./kernelmill", "./kernelmill"),
        (f"{tmp_path}/kernelmill", "./kernelmill"),
        ("/x/kernelmill/__main__.py", f"{sys.executable} -m kernelmill"),
    ):
        monkeypatch.setattr(sys, "argv", [called])
        assert own_name() == name
        assert shown(capsys, STEPS, "kernelmill show x", "ls")[-2:] == [f"  {name} show x", "  ls"]
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "argv", [f"{tmp_path}/bin/kernelmill"])
    assert own_name() == "kernelmill"
    monkeypatch.setenv("PATH", "/nowhere")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert own_name() == f"{tmp_path}/bin/kernelmill"
