"""`remove_reasoning.py` (`strip --hub`) is told what `upload_datasets.py` is told, against a Hub on the loopback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelmill.testing.fake_hub import FakeHub
from tests.publish.test_folder import row
from tests.publish.test_hub import quiet_client

Mill = Callable[..., Any]
BASE = "siro1/kernelbook-glm4_7-evals"
pytestmark = quiet_client


def rows(first: int, last: int) -> bytes:
    return b"".join(json.dumps(row(n)).encode() + b"\n" for n in range(first, last))


def published(hub: FakeHub, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hub.files("dataset", name)["kernelmill.json"])
    return found


def test_public_dry_run_and_yes_are_taken_as_publish_takes_them(
    hub: FakeHub, tmp_path: Path, mill_at_hub: Mill
) -> None:
    hub.put("dataset", BASE, {"train.jsonl": rows(0, 20)})
    strip, target = ("strip", "--hub", "raw"), f"{BASE}-no-reasoning"
    before = dict(hub._store.repos)
    done = mill_at_hub(*strip, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "strip (dry run: nothing is written)" in done.stdout
    assert "publish (dry run: nothing is changed)" in done.stdout
    assert "now         nothing is there: it would be made" in done.stdout
    assert dict(hub._store.repos) == before
    assert not (tmp_path / "outputs").exists()

    done = mill_at_hub(*strip, "--public")
    assert done.returncode == 0, done.stderr
    assert f"{target} (public)" in done.stdout
    made = hub.files("dataset", target)

    hub.put("dataset", BASE, {"train.jsonl": rows(0, 5)})
    done = mill_at_hub(*strip)
    assert done.returncode == 1
    assert "has 20 rows, and would have 5: nothing is changed; if that is meant, say --yes" in done.stderr
    assert hub.files("dataset", target) == made
    done = mill_at_hub(*strip, "--yes")
    assert done.returncode == 0, done.stderr
    assert published(hub, target)["rows"] == {"train": 5}


def test_the_publish_table_of_a_config_says_where_and_how(
    hub: FakeHub, tmp_path: Path, mill_at_hub: Mill
) -> None:
    hub.put("dataset", "me/evals", {"train.jsonl": rows(0, 20)})
    table = '[publish]\nraw_to = "me/evals"\nlicense = "mit"\npublic = true\nsplit_by = "groups"\n'
    (tmp_path / "config.toml").write_text(table)
    done = mill_at_hub("strip", "--hub", "raw", "@", "config.toml")
    assert done.returncode == 0, done.stderr
    assert (
        "source      hub:me/evals (raw on the Hub; the result is published as me/evals-no-reasoning)"
        in done.stdout
    )
    assert "source      outputs/evals-no-reasoning.jsonl (what strip wrote)" in done.stdout
    assert "me/evals-no-reasoning (public)" in done.stdout
    assert list(published(hub, "me/evals-no-reasoning")["rows"]) == ["train", "validation"]
    assert "license: mit" in hub.files("dataset", "me/evals-no-reasoning")["README.md"].decode()
    made = hub.files("dataset", "me/evals-no-reasoning")
    done = mill_at_hub("strip", "--hub", "raw", "--no-public", "--dry-run", "@", "config.toml")
    assert done.returncode == 0, done.stderr
    assert "publish (dry run: nothing is changed)" in done.stdout
    assert not re.search(r"[1-9]\d* (added|removed|changed)", done.stdout)
    assert hub.files("dataset", "me/evals-no-reasoning") == made
    # The manifest of a run stands in for a config file.
    done = mill_at_hub("strip", "--hub", "--dry-run", "@", "outputs/evals-no-reasoning.manifest.json")
    assert done.returncode == 0, done.stderr


def test_a_dry_run_over_local_rows_writes_nothing(tmp_path: Path, mill: Mill) -> None:
    (tmp_path / "rows.jsonl").write_bytes(rows(0, 3))
    done = mill("strip", "rows.jsonl", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "kept        3" in done.stdout
    assert "output" not in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]
