"""`kernelmill publish --to org/name`, against a Hub on the loopback, with the real clients."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kernelmill.testing.fake_hub import STRANGER_TOKEN, FakeHub, Fault
from tests.conftest import command, write_rows
from tests.publish.test_folder import row
from tests.publish.test_parquet import as_published

REPO = "org/name"
Mill = Callable[..., Any]
LOAD = """
import json, sys, datasets
loaded = datasets.load_dataset(sys.argv[1])
print(json.dumps({name: split.to_list() for name, split in loaded.items()}))
"""
OLD = {"train.jsonl": b'{"a": 1}\n{"a": 2}\n', "README.md": b"# old"}
# huggingface_hub's own way of calling httpx.
quiet_client = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
STEPS = {
    "looking": "/api/datasets/org/name$",
    "making": "/api/repos/create",
    "announcing": "/preupload/",
    "batch": "/objects/batch",
    "uploading": "/lfs-objects/",
    "committing": "/commit/",
}


def environment(hub: FakeHub, **more: str) -> dict[str, str]:
    return {**os.environ, **hub.environment(), **more}


def publish(hub: FakeHub, *arguments: object, env: dict[str, str] | None = None) -> Any:
    done = subprocess.run(
        command("publish", *arguments), env=environment(hub, **(env or {})), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert hub.token not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def publish_here(mill_at_hub: Mill) -> Mill:
    """`publish` without a process, for the many ways in which one request of many can go wrong."""
    return partial(mill_at_hub, "publish")


def hold(hub: FakeHub, path: str, meanwhile: Callable[[], object], times: int = 1) -> None:
    """What happens when the first requests of this path have arrived, and before they are served."""
    arrived, left = hub._arrived, [meanwhile] * times

    def arriving(method: str, asked: str) -> Fault | None:
        fault = arrived(method, asked)
        if path in asked and left:
            left.pop()()
        return fault

    hub._arrived = arriving  # type: ignore[method-assign]


def load(hub: FakeHub) -> dict[str, list[dict[str, Any]]]:
    line = [sys.executable, "-c", LOAD, REPO]
    done = subprocess.run(line, env=environment(hub), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def rows_of(first: int, last: int, **more: Any) -> list[dict[str, Any]]:
    return [row(n, difficulty="low", evaluation_raw="low", **more) for n in range(first, last)]


def state(hub: FakeHub) -> dict[str, bytes] | None:
    try:
        return hub.files("dataset", REPO)
    except KeyError:
        return None


def whole(hub: FakeHub) -> bool:
    """Whether what is there is exactly what its manifest says."""
    files = hub.files("dataset", REPO)
    made = json.loads(files.pop("kernelmill.json"))["files"]
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return hashes == {name: file["sha256"] for name, file in made.items()}


def uploads(hub: FakeHub) -> list[str]:
    return [path.rpartition("/")[2] for method, path in hub.requests if method == "PUT"]


def test_created_published_loaded_published_again_and_compared_row_for_row(
    hub: FakeHub, tmp_path: Path
) -> None:
    rows = rows_of(0, 100)
    write_rows(tmp_path / "rows.jsonl", rows)
    done = publish(hub, "rows.jsonl", "--to", REPO)
    assert done.returncode == 0, done.stderr
    assert f"{hub.endpoint}/datasets/{REPO} (private)" in done.stdout
    assert [commit.message for commit in hub.commits("dataset", REPO)] == [
        "initial commit", "Publish 100 rows with kernelmill 0.1.0",
    ]  # fmt: skip
    loaded = load(hub)
    assert sorted(
        loaded["train"] + loaded["validation"], key=lambda found: found["example_id"]
    ) == as_published(rows)
    first = state(hub)
    assert first is not None

    done = publish(hub, "rows.jsonl", "--to", REPO)
    assert "nothing to change" in done.stdout
    assert len(hub.commits("dataset", REPO)) == 2

    rows = rows_of(0, 60) + rows_of(60, 90, reward=0.5) + rows_of(200, 230)
    write_rows(tmp_path / "rows.jsonl", rows)
    assert publish(hub, "rows.jsonl", "--to", REPO).returncode == 0
    assert len(hub.commits("dataset", REPO)) == 3
    again = load(hub)
    assert sorted(
        again["train"] + again["validation"], key=lambda found: found["example_id"]
    ) == as_published(rows)
    sides = [
        {found["example_id"]: name for name, split in side.items() for found in split}
        for side in (loaded, again)
    ]
    assert all(sides[0][n] == sides[1][n] for n in range(90))
    assert whole(hub)


@pytest.mark.heavy
def test_old_data_goes_in_the_same_commit_and_other_files_stay(hub: FakeHub, tmp_path: Path) -> None:
    hub.put("dataset", REPO, {
        "data/train-00000-of-00002-abc.parquet": b"PAR1", "train.jsonl": b'{"a":1}\n', "LICENSE": b"mine",
        "README.md": b"---\nlicense: mit\n---\nold", "script.py": b"pass",
    })  # fmt: skip
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 40))
    done = publish(hub, "rows.jsonl", "--to", REPO, "--split", "none", "--yes")
    assert done.returncode == 0, done.stderr
    assert len(hub.commits("dataset", REPO)) == 2
    assert {name for name in state(hub) or {} if not name.startswith("assets/")} == {
        "README.md", "kernelmill.json", "data/train-00000-of-00001.parquet", "LICENSE", "script.py",
    }  # fmt: skip
    assert "(public)" in done.stdout
    publish(hub, "rows.jsonl", "--to", REPO, "--split", "rows", "--yes")
    assert {name for name in state(hub) or {} if name.startswith("data/")} == {
        "data/train-00000-of-00001.parquet", "data/validation-00000-of-00001.parquet",
    }  # fmt: skip
    publish(hub, "rows.jsonl", "--to", REPO, "--split", "none", "--yes")
    assert {name for name in state(hub) or {} if name.startswith("data/")} == {
        "data/train-00000-of-00001.parquet"
    }
    assert len(load(hub)["train"]) == 40


@quiet_client
def test_a_dry_run_shows_what_would_change_and_writes_nothing(
    hub: FakeHub, tmp_path: Path, publish_here: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 40))
    done = publish_here("rows.jsonl", "--to", REPO, "--dry-run", "--split", "none")
    assert "nothing is there: it would be made" in done.stdout
    assert "train       0 -> 40 rows: 40 added" in done.stdout
    assert state(hub) is None
    publish_here("rows.jsonl", "--to", REPO, "--split", "none")
    before, asked = state(hub), len(hub.requests)
    write_rows(tmp_path / "rows.jsonl", [*rows_of(1, 3, reward=0.5), *rows_of(3, 50)])
    done = publish_here("rows.jsonl", "--to", REPO, "--dry-run", "--split", "none")
    assert "train       40 -> 49 rows: 10 added, 1 removed, 2 changed, 37 unchanged" in done.stdout
    assert state(hub) == before
    assert {method for method, _ in hub.requests[asked:]} <= {"GET", "HEAD"}
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 40))
    done = publish_here("rows.jsonl", "--to", REPO, "--dry-run", "--split", "none")
    assert "40 -> 40 rows: 40 unchanged" in done.stdout
    assert "to send     nothing" in done.stdout


@quiet_client
def test_a_much_smaller_dataset_is_refused_also_where_the_old_one_is_not_ours(
    hub: FakeHub, tmp_path: Path, publish_here: Mill
) -> None:
    old = "".join(json.dumps(found) + "\n" for found in rows_of(0, 40)).encode()
    hub.put("dataset", REPO, {"train.jsonl": old})
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 10))
    done = publish_here("rows.jsonl", "--to", REPO)
    assert done.returncode == 1
    assert (
        "org/name has 40 rows, and would have 10: nothing is changed; if that is meant, say --yes"
        in done.stderr
    )
    assert state(hub) == {"train.jsonl": old}
    assert publish_here("rows.jsonl", "--to", REPO, "--yes").returncode == 0
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 4))
    assert "org/name has 10 rows, and would have 4" in publish_here("rows.jsonl", "--to", REPO).stderr


@quiet_client
@pytest.mark.parametrize(
    ("step", "action"),
    # A 404 when it is looked at is how the Hub says that there is none yet.
    [(s, a) for s in STEPS for a in (401, 403, 404, 409, 412) if (s, a) != ("looking", 404)],
)
def test_a_refusal_at_any_step_leaves_the_old_dataset_and_says_what_to_do(
    hub: FakeHub, tmp_path: Path, publish_here: Mill, step: str, action: int
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    if step != "making":
        hub.put("dataset", REPO, OLD)
    before = state(hub)
    hub.faults.append(Fault(STEPS[step], action=action))
    done = publish_here("rows.jsonl", "--to", REPO)
    assert state(hub) == before
    if (step, action) == ("making", 409):
        assert "the Hub has org/name but does not show it to HF_TOKEN" in done.stderr
    else:
        advice = {
            401: "the Hub does not know HF_TOKEN (401): make a new one at",
            403: "HF_TOKEN may not write to org/name (403): give it write access to org, or name another --to",
            404: "or HF_TOKEN may not see it (404)",
        }.get(action, "is being changed by somebody else: nothing of this is published; run the same command again")  # fmt: skip
        assert advice in done.stderr
    said = [line for line in done.stderr.splitlines() if not line.startswith("uploading ")]
    assert (done.returncode, len(said)) == (1, 1)


def test_after_a_refusal_the_same_command_finishes(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    hub.faults.append(Fault("/commit/", action=403))
    assert publish(hub, "rows.jsonl", "--to", REPO).returncode == 1
    assert state(hub) == {}
    assert publish(hub, "rows.jsonl", "--to", REPO).returncode == 0
    assert whole(hub)


@quiet_client
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("action", [429, 500, "drop", "lose"])
def test_what_passes_is_waited_for_and_ends_in_one_whole_commit(
    hub: FakeHub, tmp_path: Path, publish_here: Mill, step: str, action: Any
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    hub.faults.append(Fault(STEPS[step], action=action, retry_after=1 if action == 429 else None))
    started = time.monotonic()
    done = publish_here("rows.jsonl", "--to", REPO)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - started > (1 if action == 429 else 0)
    assert len(hub.commits("dataset", REPO)) == 2
    assert whole(hub)


@pytest.mark.heavy
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("action", [429, 500, "drop"])
def test_what_does_not_pass_leaves_the_old_dataset_and_says_what_to_do(
    hub: FakeHub, tmp_path: Path, step: str, action: Any
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    if step != "making":
        hub.put("dataset", REPO, OLD)
    before = state(hub)
    hub.faults.append(Fault(STEPS[step], action=action, times=99))
    done = publish(hub, "rows.jsonl", "--to", REPO)
    assert done.returncode == 1
    assert state(hub) == before
    assert "nothing is changed; run the same command again" in done.stderr.splitlines()[-1]


def test_a_token_that_may_not_write_or_is_wrong_or_missing_is_told(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 5))
    hub.put("dataset", REPO, {"train.jsonl": b'{"a":1}\n'}, private=True)
    before = state(hub)
    for token, message in (
        ("hf_wrong", "the Hub does not know HF_TOKEN (401)"),
        (STRANGER_TOKEN, "HF_TOKEN may not write to org/name (403)"),
        ("", "HF_TOKEN is not set, and the Hub needs it"),
    ):
        done = publish(hub, "rows.jsonl", "--to", REPO, env={"HF_TOKEN": token})
        assert done.returncode in (1, 2)
        assert message in done.stderr
        assert not token or token not in done.stdout + done.stderr
        assert done.stderr.count("\n") == 1
    assert state(hub) == before


@pytest.mark.heavy
def test_a_hub_that_is_not_there_is_told_in_one_line_at_the_end(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 5))
    done = publish(hub, "rows.jsonl", "--to", REPO, env={"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert done.returncode == 1
    assert "the Hub cannot be reached (ConnectError) while looking at the dataset org/name" in done.stderr


@pytest.mark.heavy
def test_what_an_interrupted_upload_sent_is_not_sent_again(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 50))
    hub.faults.append(Fault("/commit/", action="hang", seconds=60))
    process = subprocess.Popen(
        command("publish", "rows.jsonl", "--to", REPO), env=environment(hub, TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not any("/commit/" in path for _, path in hub.requests):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert state(hub) == {}
    sent = uploads(hub)
    assert len(sent) == len(set(sent)) == 2
    assert publish(hub, "rows.jsonl", "--to", REPO).returncode == 0
    assert uploads(hub) == sent
    assert sum(map(len, load(hub).values())) == 50


@pytest.mark.parametrize("step", ["uploading", "committing"])
def test_ctrl_c_ends_it_at_once_and_nothing_is_published(hub: FakeHub, tmp_path: Path, step: str) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 50))
    hub.faults.append(Fault(STEPS[step], action="hang", seconds=60))
    process = subprocess.Popen(
        command("publish", "rows.jsonl", "--to", REPO), env=environment(hub, TMPDIR=str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not any(re.search(STEPS[step], path) for _, path in hub.requests):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "kernelmill: interrupted"
    assert state(hub) == {}
    assert os.listdir(tmp_path) == ["rows.jsonl"]


@quiet_client
def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    hub: FakeHub, tmp_path: Path, publish_here: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    hub.faults.append(Fault("/commit/", action="lose"))
    done = publish_here("rows.jsonl", "--to", REPO)
    assert done.returncode == 0, done.stderr
    assert len(hub.commits("dataset", REPO)) == 2
    assert sum("/commit/" in path for _, path in hub.requests) == 1


@pytest.mark.heavy
def test_of_two_publishers_at_once_one_wins_and_the_other_is_told(hub: FakeHub, tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 100), ("c", 200)):
        write_rows(tmp_path / f"{name}.jsonl", rows_of(first, first + 30))
    assert publish(hub, "a.jsonl", "--to", REPO).returncode == 0
    # Both have looked at the same commit before either makes its own.
    both = threading.Barrier(2)
    hold(hub, "/preupload/", lambda: both.wait(240), times=2)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda name: publish(hub, f"{name}.jsonl", "--to", REPO), ("b", "c")))
    codes = [done.returncode for done in results]
    assert sorted(codes) == [0, 1]
    assert "is being changed by somebody else" in results[codes.index(1)].stderr
    winner = 100 if codes[0] == 0 else 200
    loaded = load(hub)
    assert sorted(found["example_id"] for split in loaded.values() for found in split) == list(
        range(winner, winner + 30)
    )


def test_somebody_who_makes_the_dataset_in_between_is_not_overwritten(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 20))
    hold(hub, "/api/repos/create", lambda: hub.put("dataset", REPO, {"train.jsonl": b'{"theirs":1}\n'}))
    done = publish(hub, "rows.jsonl", "--to", REPO)
    assert "is being changed by somebody else" in done.stderr
    assert state(hub) == {"train.jsonl": b'{"theirs":1}\n'}


@pytest.mark.heavy
def test_public_only_on_request_and_a_word_goes_to_its_target(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    for name in ("filtered_dataset", "filtered_dataset-no-reasoning", "filtered_dataset-filtered"):
        write_rows(tmp_path / f"outputs/{name}.jsonl", rows_of(0, 20))
    rows = [{"prompt": "p", "module_name": "M", "python_code": f"x = {n}"} for n in range(5)]
    write_rows(tmp_path / "outputs/synthetic_prompts.jsonl", rows)
    (tmp_path / "config.toml").write_text('[publish]\nsynthetic_to = "me/tasks"\n')
    done = publish(hub, "all", "--public", "@", "config.toml")
    assert done.returncode == 0, done.stderr
    assert "outputs/filtered_dataset-filtered-no-reasoning.jsonl is not there" in done.stdout
    names = {
        "siro1/kernelbook-glm4_7-evals-filtered", "siro1/kernelbook-glm4_7-evals-filtered-no-reasoning",
        "siro1/kernelbook-glm4_7-evals-unique", "me/tasks",
    }  # fmt: skip
    assert done.stdout.count("(public)") == 4
    for name in names:
        assert "kernelmill.json" in hub.files("dataset", name)
    assert json.loads(hub.files("dataset", "me/tasks")["kernelmill.json"])["rows"] == {"train": 5}
    write_rows(tmp_path / "outputs/evals.jsonl", rows_of(0, 20))
    # What the old .env names has nothing to do with what is published.
    done = publish(hub, "raw", env={"DATASET_PATH": "outputs/filtered_dataset.jsonl"})
    assert done.returncode == 0, done.stderr
    raw = json.loads(hub.files("dataset", "siro1/kernelbook-glm4_7-evals")["kernelmill.json"])
    assert raw["rows"] == {"train": 20}
    assert "source      outputs/evals.jsonl (raw, by the default)" in done.stdout


@quiet_client
def test_a_card_changed_by_hand_is_told_in_a_dry_run(
    hub: FakeHub, tmp_path: Path, publish_here: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 10))
    publish_here("rows.jsonl", "--to", REPO)
    hub.put("dataset", REPO, {"README.md": b"mine now"})
    done = publish_here("rows.jsonl", "--to", REPO, "--dry-run")
    assert "README.md was changed by hand, and would be replaced" in done.stdout


def test_offline_mode_and_a_name_that_cannot_be_are_told(hub: FakeHub, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", rows_of(0, 5))
    done = publish(hub, "rows.jsonl", "--to", REPO, env={"HF_HUB_OFFLINE": "1"})
    assert done.stderr == "kernelmill: the Hub is switched off by HF_HUB_OFFLINE: unset it\n"
    done = publish(hub, "rows.jsonl", "--to", "org/a..b")
    assert done.returncode == 1
    assert "looking at the dataset org/a..b: " in done.stderr
    assert done.stderr.count("\n") == 1
