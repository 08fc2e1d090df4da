"""`kernelmill publish --to folder:PATH`, as a user runs it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.publish import folder as folder_module
from kernelmill.publish.folder import FolderTarget
from kernelmill.store import open_source
from tests.conftest import ROOT, command, evals_row, read_rows, write_rows
from tests.publish.test_parquet import as_published

Mill = Callable[..., Any]
LOAD = """
import json, sys, datasets
loaded = datasets.load_dataset(sys.argv[1], cache_dir=sys.argv[2])
print(json.dumps({name: split.to_list() for name, split in loaded.items()}))
"""


def load(path: Path, cache: Path) -> dict[str, list[dict[str, Any]]]:
    """What `datasets` makes of a folder, in a process of its own."""
    line = [sys.executable, "-c", LOAD, str(path), str(cache)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def module(n: int) -> str:
    """Modules that are not alike."""
    lines = "\n".join(
        f"        x = x.{random.Random(n).choice('abcdefgh')}{n}_{k}(x + {k * n})" for k in range(12)
    )
    return f"import torch\n\nclass M{n}(torch.nn.Module):\n    def forward(self, x):\n{lines}\n        return x\n"


def row(n: int, **more: Any) -> dict[str, Any]:
    made = evals_row(n, **more)
    made["info"] |= {"module_name": f"M{n}", "python_code": module(n)}
    return made


def ours(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_datasets_opens_the_folder_and_finds_every_row_once(tmp_path: Path, mill: Mill) -> None:
    rows = [row(n, difficulty="low", evaluation_raw="é\u4e16", meta={"k": [n]}) for n in range(200)]
    write_rows(tmp_path / "rows.jsonl", rows)
    done = mill("publish", "rows.jsonl", "--to", "folder:out/dataset")
    assert done.returncode == 0, done.stderr
    loaded = load(tmp_path / "out/dataset", tmp_path / "cache")
    assert list(loaded) == ["train", "validation"]
    assert 5 <= len(loaded["validation"]) <= 40
    both = sorted(loaded["train"] + loaded["validation"], key=lambda found: found["example_id"])
    assert both == as_published(rows)
    for split in loaded.values():
        assert [found["example_id"] for found in split] == sorted(found["example_id"] for found in split)
    again = [json.loads(found.raw) for found in open_source(str(tmp_path / "out/dataset")).rows()]
    assert again == loaded["train"] + loaded["validation"]
    assert sorted(os.listdir(tmp_path / "out")) == [".dataset.kernelmill.lock", "dataset"]


def test_publishing_the_same_again_changes_nothing_and_says_so(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(20)])
    mill("publish", "rows.jsonl", "--to", "folder:out")
    before, number = ours(tmp_path / "out"), (tmp_path / "out").stat().st_ino
    done = mill("publish", "rows.jsonl", "--to", "folder:out")
    assert "nothing to change" in done.stdout
    assert (ours(tmp_path / "out"), (tmp_path / "out").stat().st_ino) == (before, number)
    other = mill("publish", "rows.jsonl", "--to", "folder:elsewhere/out")
    assert other.returncode == 0
    assert ours(tmp_path / "elsewhere/out") == before


def test_the_manifest_says_what_is_there_and_no_folder_of_this_machine(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "raw.jsonl", [row(n, reward=1.0) for n in range(20)])
    assert (
        mill(
            "rate", tmp_path / "raw.jsonl", "-o", tmp_path / "rated.jsonl", "--rater", "static", "--no-trace"
        ).returncode
        == 0
    )
    assert mill("unique", tmp_path / "rated.jsonl", "-o", tmp_path / "best.jsonl").returncode == 0
    done = mill("publish", tmp_path / "best.jsonl", "--to", f"folder:{tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out/kernelmill.json").read_text()
    manifest = json.loads(text)
    assert str(tmp_path) not in text
    assert str(tmp_path) not in (tmp_path / "out/README.md").read_text()
    assert [stage["stage"] for stage in manifest["lineage"]] == ["rate", "unique"]
    assert manifest["lineage"][1]["source"] == {"kind": "file", "path": "rated.jsonl"}
    assert sum(manifest["rows"].values()) == 20
    assert manifest["split"]["split"] == "groups"
    assert manifest["leakage"]["groups_on_both_sides"] == 0
    assert set(manifest["files"]) | {"kernelmill.json"} == set(ours(tmp_path / "out"))
    rows = read_rows(tmp_path / "best.jsonl")
    write_rows(tmp_path / "best.jsonl", rows[:-1])
    done = mill("publish", "best.jsonl", "--to", "folder:out")
    assert "is not what its manifest says it was" in done.stdout
    assert json.loads((tmp_path / "out/kernelmill.json").read_text())["lineage"] == []


def test_a_dry_run_tells_rows_and_columns_and_writes_nothing(tmp_path: Path, mill: Mill) -> None:
    rows = [row(n) for n in range(40)]
    write_rows(tmp_path / "rows.jsonl", rows)
    mill("publish", "rows.jsonl", "--to", "folder:out", "--split", "none")
    before = ours(tmp_path / "out")
    rows[3]["reward"] = 0.25
    write_rows(tmp_path / "rows.jsonl", [*[r | {"new": 1} for r in rows[2:4]], *rows[4:], row(99)])
    done = mill("publish", "rows.jsonl", "--to", "folder:out", "--split", "none", "--dry-run")
    assert "train       40 -> 39 rows: 1 added, 2 removed, 2 changed, 36 unchanged\n" in done.stdout
    assert "schema      column new is new (int64)" in done.stdout
    assert re.search(r"^to send     [\d.]+ kB$", done.stdout, re.MULTILINE)
    assert ours(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == [".out.kernelmill.lock", "out", "rows.jsonl"]


@pytest.mark.heavy
def test_a_much_smaller_dataset_is_not_put_in_place_unasked(tmp_path: Path, mill_process: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(20)])
    mill_process("publish", "rows.jsonl", "--to", "folder:out")
    before = ours(tmp_path / "out")
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(9)])
    done = mill_process("publish", "rows.jsonl", "--to", "folder:out", stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr == (
        "kernelmill: out has 20 rows, and would have 9: nothing is changed; if that is meant, say --yes\n"
    )
    assert ours(tmp_path / "out") == before
    assert mill_process("publish", "rows.jsonl", "--to", "folder:out", "--yes").returncode == 0
    assert ours(tmp_path / "out") != before


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_on_a_terminal_it_asks(tmp_path: Path, mill_process: Mill, answer: str, code: int) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(20)])
    mill_process("publish", "rows.jsonl", "--to", "folder:out")
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(9)])
    keyboard, terminal = os.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    done = mill_process("publish", "rows.jsonl", "--to", "folder:out", stdin=terminal)
    os.close(keyboard)
    os.close(terminal)
    assert done.returncode == code
    assert "out has 20 rows, and would have 9. Go on? [y/N]" in done.stderr


@pytest.mark.heavy
def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, mill_process: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(1)])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("precious")
    done = mill_process("publish", "rows.jsonl", "--to", "folder:mine", "--yes")
    assert done.returncode == 1
    assert "mine holds files that kernelmill did not make (notes.txt)" in done.stderr
    (tmp_path / "empty").mkdir()
    assert mill_process("publish", "rows.jsonl", "--to", "folder:empty").returncode == 0
    (tmp_path / "empty/notes.txt").write_text("precious")
    write_rows(tmp_path / "rows.jsonl", [row(2)])
    done = mill_process("publish", "rows.jsonl", "--to", "folder:empty", "--yes")
    assert "a file that kernelmill did not make (notes.txt)" in done.stderr
    (tmp_path / "empty/notes.txt").unlink()
    (tmp_path / "empty/README.md").write_text("written by hand")
    done = mill_process("publish", "rows.jsonl", "--to", "folder:empty", stdin=subprocess.DEVNULL)
    assert "README.md in empty was changed by hand, which would be lost" in done.stderr
    assert mill_process("publish", "rows.jsonl", "--to", "folder:empty", "--yes").returncode == 0
    write_rows(tmp_path / "other.jsonl", [row(1)])
    done = mill_process("publish", "rows.jsonl", "--to", "folder:other.jsonl")
    assert "other.jsonl is a file: name a folder" in done.stderr


def test_rows_that_fail_leave_the_old_dataset_and_nothing_else(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(10)])
    mill("publish", "rows.jsonl", "--to", "folder:out")
    before = ours(tmp_path / "out")
    write_rows(tmp_path / "rows.jsonl", [*[row(n) for n in range(10)], row(11, task=3)])
    done = mill("publish", "rows.jsonl", "--to", "folder:out")
    assert done.stderr == "kernelmill: rows.jsonl:11: field $.task: expected text, got a whole number\n"
    assert ours(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == [".out.kernelmill.lock", "out", "rows.jsonl"]


@pytest.mark.slow
@pytest.mark.heavy
def test_killed_at_any_moment_it_leaves_the_old_or_the_new_dataset_whole(tmp_path: Path, mill: Mill) -> None:
    versions = []
    for start in (0, 10_000):
        source = write_rows(
            tmp_path / f"{start}.jsonl", [row(n, answer_bytes=2000) for n in range(start, start + 3000)]
        )
        assert mill("publish", source, "--to", "folder:real/out", "--split", "none").returncode == 0
        versions.append(ours(tmp_path / "real/out"))
    line = command("publish", tmp_path / "0.jsonl", "--to", f"folder:{tmp_path}/out", "--split", "none")
    subprocess.run(line, check=True, capture_output=True)
    started = time.monotonic()
    line = command("publish", tmp_path / "10000.jsonl", "--to", f"folder:{tmp_path}/out", "--split", "none")
    subprocess.run(line, check=True, capture_output=True)
    whole = time.monotonic() - started
    chance, seen = random.Random(1), set()
    for number in range(14):
        source = tmp_path / f"{10_000 * (number % 2)}.jsonl"
        process = subprocess.Popen(
            command("publish", source, "--to", f"folder:{tmp_path}/out", "--split", "none"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(whole * chance.uniform(0.3, 1.1))
        process.kill()
        process.wait()
        found = ours(tmp_path / "out")
        assert found in versions
        seen.add(versions.index(found))
    assert mill("publish", tmp_path / "0.jsonl", "--to", "folder:out", "--split", "none").returncode == 0
    assert ours(tmp_path / "out") == versions[0]
    assert [
        name for name in os.listdir(tmp_path) if name.startswith(".out.") and not name.endswith(".lock")
    ] == []


def test_the_swap_is_one_step_and_readers_never_find_nothing(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    missing, stop = [], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            try:
                (tmp_path / "a/file").read_text()
            except FileNotFoundError:
                missing.append(1)

    thread = threading.Thread(target=watch)
    thread.start()
    for _ in range(500):
        folder_module._exchange(tmp_path / "b", tmp_path / "a")
    stop.set()
    thread.join()
    assert missing == []


def test_where_folders_cannot_be_swapped_a_killed_process_is_mended_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(folder_module, "_exchange", cannot)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").write_text("old")
    with FolderTarget(tmp_path / "out") as target:
        (target.staging() / "new").write_text("new")
        target._swap()
        assert (tmp_path / "out/new").read_text() == "new"
    assert not (tmp_path / ".out.old").exists()
    # Killed between the two steps:
    os.rename(tmp_path / "out", tmp_path / ".out.old")
    with FolderTarget(tmp_path / "out"):
        assert (tmp_path / "out/new").read_text() == "new"


def test_ctrl_c_leaves_what_was_there(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(10)])
    mill("publish", "rows.jsonl", "--to", "folder:out")
    before = ours(tmp_path / "out")
    write_rows(tmp_path / "rows.jsonl", [row(n, answer_bytes=3000) for n in range(20_000)])
    process = subprocess.Popen(
        command("publish", "rows.jsonl", "--to", "folder:out", "--split", "none"),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(tmp_path.glob(".out.new/*.part")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=240)
    assert (process.returncode, stderr) == (130, "kernelmill: interrupted\n")
    assert ours(tmp_path / "out") == before
    assert sorted(os.listdir(tmp_path)) == [".out.kernelmill.lock", "out", "rows.jsonl"]


def test_two_at_once_do_not_mix(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(10)])
    with FolderTarget(tmp_path / "out"):
        done = mill("publish", "rows.jsonl", "--to", "folder:out")
    assert done.stderr == "kernelmill: out is being written by another kernelmill process\n"
    assert not (tmp_path / "out").exists()


def test_a_word_stands_for_its_file_and_the_variant_goes_along(tmp_path: Path, mill: Mill) -> None:
    (tmp_path / "outputs").mkdir()
    rows = [row(n, difficulty="low", evaluation_raw="low") for n in range(30)]
    write_rows(tmp_path / "outputs/filtered_dataset.jsonl", rows)
    write_rows(tmp_path / "best.jsonl", rows[:10])
    write_rows(tmp_path / "outputs/synthetic_prompts.jsonl", [
        {"prompt": "p", "module_name": f"M{n}", "python_code": module(n), "uuid": n} for n in range(30)
    ])  # fmt: skip
    assert mill("strip", "outputs/filtered_dataset.jsonl").returncode == 0
    env = {"UNIQUE_DATASET_PATH": "best.jsonl"}
    done = mill("publish", "all", "--to", "folder:out", env=env)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir() if p.name[0] != ".") == [
        "filtered", "filtered-no-reasoning", "synthetic", "unique",
    ]  # fmt: skip
    assert "best-no-reasoning.jsonl is not there, so no -no-reasoning variant is published" in done.stdout
    counts = {
        name: json.loads((tmp_path / f"out/{name}/kernelmill.json").read_text())["rows"]
        for name in ("filtered", "filtered-no-reasoning", "synthetic", "unique")
    }
    assert counts["synthetic"] == {"train": 30}
    assert counts["filtered"] == counts["filtered-no-reasoning"]
    assert sum(counts["filtered"].values()) == 30
    stripped = load(tmp_path / "out/filtered-no-reasoning", tmp_path / "cache")["train"]
    assert all(re.fullmatch("<answer>.*</answer>", found["completion"][0]["content"]) for found in stripped)
    script = [sys.executable, ROOT / "scripts/upload_datasets.py", "synthetic", "--to", "folder:out"]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "nothing to change" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (["rows.jsonl"], {}, "say where to: --to org/name for the Hub, or --to folder:PATH"),
        (["rows.jsonl", "--to", "folder:"], {}, "--to folder:: name a folder"),
        (["rows.jsonl", "--to", "nonsense"], {}, "--to nonsense: expected org/name for the Hub, or folder:PATH"),
        (["all", "--to", "org/name"], {}, "all goes to more than one dataset"),
        (["filtered"], {}, "outputs/filtered_dataset.jsonl is not there: make it with kernelmill rate"),
        (["raw"], {}, "outputs/evals.jsonl is not there: make it with kernelmill synthesize"),
        (["raw"], {"KERNELMILL_RAW_PATH": "siro1/kernelbook-glm4_7-evals"}, "would be published over itself"),
        (["rows.jsonl", "--to", "org/name"], {}, "HF_TOKEN is not set, and the Hub needs it"),
        (["rows.jsonl", "--to", "org/name"], {"TEST_MODE": "true", "HF_TOKEN": "hf_x"}, "test mode never uploads"),
        (["rows.test.jsonl", "--to", "folder:out"], {}, "rows.test.jsonl was made in test mode"),
        (["renamed.jsonl", "--to", "folder:out"], {}, "renamed.jsonl was made in test mode"),
        (["rows.jsonl", "--to", "folder:out", "--validation", "1"], {}, "--validation: input should be less than 1"),
        (["rows.jsonl", "--to", "folder:out", "--split-by", "half"], {}, "--split-by: "),
        (["rows.jsonl", "--to", "folder:out", "--split", "half"], {}, "has no splits: leave --split out"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_before_any_work(
    tmp_path: Path, mill: Mill, arguments: list[str], env: dict[str, str], message: str
) -> None:
    for name in ("rows.jsonl", "rows.test.jsonl", "renamed.jsonl"):
        write_rows(tmp_path / name, [row(1)])
    made = {"stage": "rate", "output": {"path": "rows.test.jsonl"}, "config": {"test_mode": True}}
    (tmp_path / "renamed.manifest.json").write_text(json.dumps(made))
    done = mill("publish", *arguments, env=env)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_test_mode_writes_five_rows_beside_the_real_folder(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(20)])
    mill("publish", "rows.jsonl", "--to", "folder:out")
    before = ours(tmp_path / "out")
    done = mill("publish", "rows.jsonl", "--to", "folder:out", env={"TEST_MODE": "true"})
    assert done.returncode == 0, done.stderr
    assert "out.test (the first rows only, for it is test mode)" in done.stdout
    assert sum(json.loads((tmp_path / "out.test/kernelmill.json").read_text())["rows"].values()) == 5
    assert ours(tmp_path / "out") == before


def test_one_row_and_a_split_without_rows_are_a_dataset_too(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(1)])
    done = mill("publish", "rows.jsonl", "--to", "folder:out", "--seed", "1")
    assert done.returncode == 0, done.stderr
    loaded = load(tmp_path / "out", tmp_path / "cache")
    assert sum(map(len, loaded.values())) == 1
    assert "the split is left out" in done.stdout


def test_the_old_split_by_rows_is_one_flag_away(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(n) for n in range(50)])
    done = mill("publish", "rows.jsonl", "--to", "folder:out", "--split", "rows", "--validation", "0.2")
    assert "rows        train 40, validation 10 (13 columns)" in done.stdout


def test_a_folder_inside_the_source_is_refused(tmp_path: Path, mill: Callable[..., Any]) -> None:
    (tmp_path / "sub").mkdir()
    write_rows(tmp_path / "sub/rows.jsonl", [evals_row(1)])
    done = mill("publish", "sub", "--to", "folder:sub/out")
    assert done.returncode == 2
    assert "into itself" in done.stderr
