"""The old commands, under their old names, one after the other, with a model and a Hub on the loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.testing.fake_endpoint import FakeEndpoint
from kernelmill.testing.fake_hub import TOKEN, FakeHub
from tests.conftest import ROOT, read_rows

OWNER = "siro1/kernelbook"


def script(name: str, *arguments: str, cwd: Path, env: dict[str, str]) -> str:
    line = [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *arguments]
    done = subprocess.run(line, cwd=cwd, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, f"{name} {arguments}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
def test_the_old_commands_lead_from_evals_to_the_hub(tmp_path: Path) -> None:
    samples = ROOT / "data/samples/evals.jsonl"
    with FakeEndpoint() as endpoint, FakeHub() as hub:
        env = {
            **os.environ,
            **hub.environment(),
            "HF_TOKEN": TOKEN,
            "DATASET_PATH": str(samples),
            "KERNELMILL_BASE_URL": endpoint.base_url,
            "KERNELMILL_TOKENIZER": "qwen-embedded",
        }
        script("filter_and_enrich_by_difficulty", cwd=tmp_path, env=env)
        script("filter_unique_best", cwd=tmp_path, env=env)
        script("generate_prompts", "bundled:problems", "--writer", "static", cwd=tmp_path, env=env)
        script("remove_reasoning", "filtered", cwd=tmp_path, env=env)
        script("remove_reasoning", "unique", cwd=tmp_path, env=env)
        # The evals stand in the repository here: not beside them, please.
        for word in ("raw", "source"):
            script("remove_reasoning", word, "-o", f"outputs/{word}.jsonl", cwd=tmp_path, env=env)
        assert "percentile" in script("analyze_seq_length", cwd=tmp_path, env=env)
        script("upload_datasets", "all", cwd=tmp_path, env=env)
        script("upload_datasets", "raw", cwd=tmp_path, env=env)
        outputs = tmp_path / "outputs"
        filtered = read_rows(outputs / "filtered_dataset.jsonl")
        unique = read_rows(outputs / "filtered_dataset-filtered.jsonl")
        assert 0 < len(unique) < len(filtered) < 60
        assert len(read_rows(outputs / "raw.jsonl")) == 60
        assert (outputs / "raw.jsonl").read_bytes() == (outputs / "source.jsonl").read_bytes()
        expected = {
            f"{OWNER}-glm4_7-evals-filtered": len(filtered),
            f"{OWNER}-glm4_7-evals-filtered-no-reasoning": len(filtered),
            f"{OWNER}-glm4_7-evals-unique": len(unique),
            f"{OWNER}-glm4_7-evals-unique-no-reasoning": len(unique),
            f"{OWNER}-synthetic-tasks": 40,
            f"{OWNER}-glm4_7-evals": 60,
        }
        program = (
            "import sys, datasets\n"
            "for name in sys.argv[1:]:\n"
            "    found = datasets.load_dataset(name)\n"
            "    print(name, sum(part.num_rows for part in found.values()), *found)\n"
        )
        line = [sys.executable, "-W", "ignore", "-c", program, *expected]
        loaded = subprocess.run(line, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert loaded.returncode == 0, loaded.stderr
    found = [text.split() for text in loaded.stdout.splitlines()]
    assert {name: int(rows) for name, rows, *_ in found} == expected
    for name, _, *splits in found:
        whole = name.endswith(("synthetic-tasks", "glm4_7-evals"))
        assert splits == ["train"] if whole else ["train", "validation"], name
