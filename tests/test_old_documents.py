"""The commands of the pipeline that kernelmill replaces, as its documents have them: in their order, with their `.env`.

Every command is a process of its own that can import what a plain install has, and nothing else. The model and the Hub are on the
loopback. What differs from those documents is in scripts/README.md.

With the path of uv in WALK_WITH_UV, the commands are typed as they are documented, `uv run python scripts/…`, in a fresh clone: uv then
installs what a plain install has, for which it needs a package index, so this is not what `make test` does.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kernelmill.settings.registry import stage_classes
from kernelmill.testing.example_rows import MODULE
from kernelmill.testing.fake_endpoint import FakeEndpoint, rate_reply
from kernelmill.testing.fake_hub import TOKEN, FakeHub
from tests.conftest import ROOT, evals_row, read_rows, write_rows
from tests.curate.test_specs import GOOD
from tests.made_once import qwen_folder
from tests.problems.sets.sets import write_levels

BASE = "siro1/kernelbook-glm4_7-evals"
TASKS = "siro1/kernelbook-synthetic-tasks"
TOKENIZER = "Qwen/Qwen3-30B-A3B-Thinking-2507"
MODEL = "zai-org/GLM-4.7-FP8"
OLD_ENV = f"""PRIME_API_KEY=your_prime_intellect_api_key
PRIME_TEAM_ID=your_team_id
HF_TOKEN={TOKEN}
DATASET_PATH={BASE}-filtered
FILTERED_DATASET_PATH=outputs/filtered_dataset.jsonl
UNIQUE_DATASET_PATH=outputs/filtered_dataset-filtered.jsonl
SYNTHETIC_DATASET_PATH=outputs/synthetic_prompts.jsonl
"""
UV = os.environ.get("WALK_WITH_UV")
SAMPLES = (ROOT / "data/samples/evals.jsonl").read_bytes()
BOOK_ROWS = 9

ONLY_CORE = """from importlib.machinery import PathFinder

blocked, find = set({blocked!r}), PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in blocked else find(name, path, target)

PathFinder.find_spec = find_spec
"""


def beyond_the_core() -> list[str]:
    """The packages here that a plain `uv sync` does not install, by the names under which they are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core: set[str] = {"kernelmill"}
    owed = [Requirement(text) for text in project["dependencies"]]
    while owed:
        one = owed.pop()
        name = canonicalize_name(one.name)
        extras = one.extras or {""}
        if not any(one.marker is None or one.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        key = f"{name}[{','.join(sorted(one.extras))}]" if one.extras else name
        if key in core:
            continue
        core |= {key, name}
        for text in importlib.metadata.requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                inner.marker = None
                owed.append(inner)
    return sorted(
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not core & {canonicalize_name(owner) for owner in owners} and not module.startswith("__editable__")
    )


def reply(body: dict[str, Any]) -> str:
    """A model that rates, and writes good specifications of the example modules."""
    number = re.search(r"class Scale(\d+)\(", body["messages"][0]["content"])
    if number is None:
        return rate_reply(body)
    text = GOOD.replace("GateNew", f"Scale{number[1]}New").replace("x and mask", "x")
    text = text.replace("width and block_size (4 by default)", "factor").replace("block size", "factor")
    lines = text.replace("(2, 8)", "(4, 4)").splitlines()
    return "\n".join(line for line in lines if not line.startswith("- mask"))


class Old:
    """A project root with the old `.env`, and the servers that its commands talk to."""

    def __init__(self, root: Path, hub: FakeHub, endpoint: FakeEndpoint) -> None:
        self.root, self.hub, self.endpoint = root, hub, endpoint
        (root / ".env").write_text(OLD_ENV)
        (root / "site").mkdir()
        (root / "site/sitecustomize.py").write_text(ONLY_CORE.format(blocked=beyond_the_core()))
        clients = {key: value for key, value in hub.environment().items() if key != "HF_TOKEN"}
        self.env = {**os.environ, **clients, "KERNELMILL_BASE_URL": endpoint.base_url}

    def run(
        self, line: str, *, plain: bool = True, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """`uv run python scripts/x.py …`, with this Python in place of uv's unless there is one."""
        if UV and plain and line.startswith("uv run "):
            return self._process([UV, *line.split()[1:]], cwd, env)
        words = line.removeprefix("uv run ").split()
        command = [sys.executable, *words[1:]]
        if words[1].startswith("scripts/"):
            command = [sys.executable, str(ROOT / words[1]), *words[2:]]
        here = {"PYTHONPATH": str(self.root / "site")} if plain else {}
        return self._process(command, cwd, {**here, **env})

    def _process(
        self, command: list[str], cwd: Path | None, env: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=cwd or self.root, env={**self.env, **env}, capture_output=True, text=True, timeout=240
        )  # fmt: skip

    def do(self, line: str, **more: Any) -> str:
        done = self.run(line, **more)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def published(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.hub.files("dataset", name)["kernelmill.json"])
        return found

    def load(self, names: list[str]) -> None:
        """`datasets` opens what was published, with the rows and splits that its manifest tells."""
        program = (
            "import sys, datasets\n"
            "for name in sys.argv[1:]:\n"
            "    found = datasets.load_dataset(name)\n"
            "    print(name, *(f'{split}={found[split].num_rows}' for split in found))\n"
        )
        command = [sys.executable, "-W", "ignore", "-c", program, *names]
        env = {**self.env, "HF_TOKEN": TOKEN}
        loaded = subprocess.run(command, env=env, cwd=self.root, capture_output=True, text=True, timeout=240)
        assert loaded.returncode == 0, loaded.stderr
        lines = [line.split() for line in loaded.stdout.splitlines()]
        assert [name for name, *_ in lines] == names
        for name, *splits in lines:
            assert splits == [f"{split}={rows}" for split, rows in self.published(name)["rows"].items()], name

    def rows(self, name: str) -> list[dict[str, Any]]:
        return read_rows(self.root / "outputs" / name)


@pytest.fixture(scope="session")
def tokenizer() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in qwen_folder().iterdir()}


@pytest.fixture
def old(tmp_path: Path, tokenizer: dict[str, bytes]) -> Iterator[Old]:
    with FakeHub() as hub, FakeEndpoint(reply=reply) as endpoint:
        hub.put("dataset", BASE, {"data/train.jsonl": SAMPLES})
        book = [
            {"entry_point": f"Scale{n}", "python_code": MODULE.format(n=n, about="Scales."), "module_name": f"Scale{n}", "uuid": n}
            for n in range(BOOK_ROWS)
        ]  # fmt: skip
        lines = "".join(json.dumps(row) + "\n" for row in book)
        hub.put("dataset", "GPUMODE/KernelBook", {"train.jsonl": lines.encode()})
        hub.put("model", TOKENIZER, tokenizer)
        root = tmp_path
        if UV:
            root = tmp_path / "clone"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(root)], check=True)
            subprocess.run([UV, "sync", "-q"], cwd=root, check=True)
        yield Old(root, hub, endpoint)


@pytest.mark.slow
def test_the_pipeline_runs_as_documented_after_a_plain_install(old: Old) -> None:
    base = old.hub.files("dataset", BASE)
    said = old.do("uv run python scripts/filter_and_enrich_by_difficulty.py")
    # DATASET_PATH names the filtered set, and is none of this step's business.
    assert f"source      {BASE} (the default)" in said
    good = [row for row in map(json.loads, SAMPLES.splitlines()) if row["reward"] > 0.85]
    filtered = old.rows("filtered_dataset.jsonl")
    assert [{name: row[name] for name in good[0]} for row in filtered] == good
    assert {row["difficulty"] for row in filtered} <= {"low", "medium", "high"}
    assert all(row["evaluation_raw"] for row in filtered)

    said = old.do("uv run python scripts/generate_prompts.py")
    assert "source      GPUMODE/KernelBook (the default)" in said
    specs = old.rows("synthetic_prompts.jsonl")
    assert [row["module_name"] for row in specs] == [f"Scale{n}" for n in range(BOOK_ROWS)]
    assert all(list(row)[:3] == ["prompt", "module_name", "python_code"] for row in specs)

    said = old.do("uv run python scripts/filter_unique_best.py")
    assert "source      outputs/filtered_dataset.jsonl (FILTERED_DATASET_PATH in .env)" in said
    unique = old.rows("filtered_dataset-filtered.jsonl")
    assert 0 < len(unique) < len(filtered)

    # The filtered set is not on the Hub before step 5, and this is step 4.
    done = old.run("uv run python scripts/analyze_seq_length.py")
    assert done.returncode == 0, done.stderr
    assert f"source      {BASE}-filtered (DATASET_PATH in .env)" in done.stdout
    assert "is not on the Hub yet: reading outputs/filtered_dataset.jsonl" in done.stderr
    said = done.stdout
    for percentile in ("50", "75", "90", "95", "99", "99.5", "99.9", "100"):
        assert re.search(rf"^ *{re.escape(percentile)} +[\d,]+$", said, re.MULTILINE), percentile
    for coverage in ("99%", "99.5%", "100%"):
        assert re.search(rf"^ *{re.escape(coverage)} +[\d,]+ ", said, re.MULTILINE), coverage

    said = old.do("uv run python scripts/upload_datasets.py all")
    assert "source      outputs/filtered_dataset.jsonl (filtered, by FILTERED_DATASET_PATH in .env)" in said
    assert old.hub.files("dataset", BASE) == base
    for name, rows in ((f"{BASE}-filtered", filtered), (f"{BASE}-unique", unique)):
        splits = old.published(name)["rows"]
        assert list(splits) == ["train", "validation"]
        assert sum(splits.values()) == len(rows)
    assert old.published(TASKS)["rows"] == {"train": BOOK_ROWS}
    for word in ("filtered", "unique", "synthetic"):
        assert "nothing to change" in old.do(f"uv run python scripts/upload_datasets.py {word}")
    done = old.run("uv run python scripts/analyze_seq_length.py")
    assert (done.returncode, done.stderr) == (0, "")

    _no_reasoning(old, base)


def _no_reasoning(old: Old, base: dict[str, bytes]) -> None:
    """Step 6, from the Hub to the Hub: what is here is not looked at."""
    for file in (old.root / "outputs").iterdir():
        file.rename(file.with_name(f"away-{file.name}"))
    for word, name in (("raw", BASE), ("filtered", f"{BASE}-filtered"), ("unique", f"{BASE}-unique")):
        said = old.do(f"uv run python scripts/remove_reasoning.py {word}")
        assert (
            f"source      hub:{name} ({word} on the Hub; the result is published as {name}-no-reasoning)"
            in said
        )
        rows = old.rows(f"{name.rpartition('/')[2]}-no-reasoning.jsonl")
        answers = [message["content"] for row in rows for message in row["completion"]]
        assert all(re.fullmatch(r"(?s)<answer>.*</answer>", answer) for answer in answers)
        assert not any("reasoning" in message for row in rows for message in row["completion"])
        made = old.published(f"{name}-no-reasoning")
        if word == "raw":
            assert made["rows"] == {"train": 60}
            continue
        # On the side on which each row was: what one set trains on, its variant must not be measured on.
        assert made["rows"] == old.published(name)["rows"]
        card = old.hub.files("dataset", f"{name}-no-reasoning")["README.md"].decode()
        assert f"As in `{name}`, from which the rows were made" in card
    assert old.hub.files("dataset", BASE) == base
    names = [f"{BASE}-{word}{end}" for word in ("filtered", "unique") for end in ("", "-no-reasoning")]
    old.load([*names, TASKS])


@pytest.mark.slow
@pytest.mark.heavy
def test_in_test_mode_each_step_goes_on_from_the_one_before_and_nothing_is_uploaded(old: Old) -> None:
    before = dict(old.hub._store.repos)
    old.do("uv run python scripts/filter_and_enrich_by_difficulty.py", TEST_MODE="true")
    old.do("uv run python scripts/generate_prompts.py", TEST_MODE="true")
    assert old.endpoint.asked.total() == 10
    said = old.do("uv run python scripts/filter_unique_best.py", TEST_MODE="true")
    assert (
        "source      outputs/filtered_dataset.test.jsonl (FILTERED_DATASET_PATH in .env; in test mode" in said
    )
    assert 0 < len(old.rows("filtered_dataset-filtered.test.jsonl")) <= 5
    old.do("uv run python scripts/analyze_seq_length.py", TEST_MODE="true")
    said = old.do("uv run python scripts/upload_datasets.py all", TEST_MODE="true")
    assert "test mode uploads nothing" in said
    for word in ("filtered", "unique", "synthetic"):
        assert (old.root / f"outputs/hub.test/{word}/kernelmill.json").is_file()
    for word in ("raw", "filtered", "unique"):
        old.do(f"uv run python scripts/remove_reasoning.py {word}", TEST_MODE="true")
    assert len(old.rows("filtered_dataset-no-reasoning.test.jsonl")) == 5
    assert dict(old.hub._store.repos) == before
    made = [file for file in (old.root / "outputs").glob("*.jsonl") if ".test." not in file.name]
    assert made == []


def test_without_a_token_reasoning_is_removed_here_and_nothing_is_uploaded(old: Old) -> None:
    (old.root / "outputs").mkdir()
    write_rows(
        old.root / "outputs/filtered_dataset.jsonl", [evals_row(n, difficulty="low") for n in range(4)]
    )
    said = old.do("uv run python scripts/remove_reasoning.py filtered", HF_TOKEN="")
    assert "FILTERED_DATASET_PATH in .env; HF_TOKEN is not set, so nothing is uploaded" in said
    assert len(old.rows("filtered_dataset-no-reasoning.jsonl")) == 4
    done = old.run("uv run python scripts/remove_reasoning.py unique", HF_TOKEN="")
    assert done.returncode == 1
    assert done.stderr == (
        "kernelmill: outputs/filtered_dataset-filtered.jsonl is not there, and HF_TOKEN is not set: "
        f"set it to read {BASE}-unique on the Hub, or make the file with kernelmill unique\n"
    )
    write_rows(old.root / "outputs/evals.jsonl", [evals_row(n) for n in range(3)])
    for word in ("raw", "source"):  # the same set by two names
        old.do(f"uv run python scripts/remove_reasoning.py {word} -o outputs/{word}.jsonl", HF_TOKEN="")
    assert len(old.rows("raw.jsonl")) == 3
    assert old.rows("raw.jsonl") == old.rows("source.jsonl")
    assert all("no-reasoning" not in name for _, name in old.hub._store.repos)


@pytest.mark.heavy
def test_what_needs_torch_says_how_to_get_it_before_anything_is_read(old: Old) -> None:
    help_ = "uv sync --extra eval, or pip install 'kernelmill[eval]'\n"
    seen = len(old.hub.requests)
    done = old.run(f"uv run python -m kernelmill synthesize @ {ROOT / 'configs/synth.toml'}")
    assert (done.returncode, done.stderr) == (
        2,
        f"kernelmill: evaluating needs torch, triton, numpy: {help_}",
    )
    assert done.stdout.startswith("source      GPUMODE/KernelBook ([[env]] in ")
    data = f"--data {ROOT / 'data/problems'}"
    done = old.run(f"uv run python scripts/batch_decompose.py {data} --level 3 --start 0 --count 10")
    assert (done.returncode, done.stderr) == (2, f"kernelmill: decompose needs torch, ruff: {help_}")
    assert len(old.hub.requests) == seen


@pytest.mark.slow
def test_step_0_asks_the_model_that_the_documented_server_serves_and_its_rows_are_published_as_they_are(
    old: Old,
) -> None:
    # Answers that do not parse are rows too, and need no judge: what is said of them has no keys in many places.
    with FakeEndpoint(reply=lambda body: "<answer>def</answer>") as endpoint:
        line = f"uv run python -m kernelmill synthesize @ {ROOT / 'configs/synth.toml'}"
        old.do(line, plain=False, KERNELMILL_BASE_URL=endpoint.base_url)
        assert {seen.body["model"] for seen in endpoint.seen} == {MODEL}
    rows = old.rows("evals.jsonl")
    assert len(rows) == 4 * BOOK_ROWS
    said = old.do("uv run python scripts/upload_datasets.py raw")
    assert "source      outputs/evals.jsonl (raw, by the default)" in said
    made = old.published(BASE)
    assert made["rows"] == {"train": len(rows)}
    assert list(made["columns"]) == list(rows[0])
    assert (made["columns"]["verdict"], made["columns"]["turns"]) == ("string", "string")
    old.load([BASE])


def test_the_merged_file_is_made_and_verified_in_the_folder_of_the_level_files(old: Old) -> None:
    folder = old.root / "data/kernel_bench"
    folder.mkdir(parents=True)
    merge, verify = (
        f"python {ROOT / 'data/kernel_bench' / name}"
        for name in ("merge_triton_levels.py", "verify_merged_data.py")
    )
    done = old.run(merge, cwd=folder)
    assert done.returncode == 1
    assert "kernel_bench_triton_level_1.jsonl: no such file: kernelmill problems export -o ." in done.stderr
    write_levels(folder)
    done = old.run(verify, cwd=folder)
    assert "kernel_bench_triton_all_levels.jsonl: no such file: kernelmill problems merge ." in done.stderr
    source = "source      kernel_bench_triton_level_{1,2,3,4}.jsonl (the current folder)\n"
    assert old.do(merge, cwd=folder).startswith(source)
    first = (folder / "kernel_bench_triton_all_levels.jsonl").read_bytes()
    assert first.count(b"\n") == 270
    said = old.do(verify, cwd=folder)
    assert said.startswith(source)
    assert "OK: every row of" in said
    old.do(f"{merge} --no-shuffle --output plain.jsonl", cwd=folder)
    old.do(f"{merge} --seed 7 --output other.jsonl", cwd=folder)
    plain, other = ((folder / name).read_bytes() for name in ("plain.jsonl", "other.jsonl"))
    assert sorted(plain.splitlines()) == sorted(other.splitlines()) == sorted(first.splitlines())
    assert len({plain, other, first}) == 3


@pytest.mark.slow
@pytest.mark.heavy
def test_batch_decompose_names_a_model_by_its_file_and_says_what_makes_the_set(old: Old) -> None:
    line = "python scripts/batch_decompose.py --level 3 --start 0 --count 10"
    done = old.run(line, plain=False)
    assert done.returncode == 1
    assert done.stderr == (
        "batch_decompose.py: data/kernelbench: no such folder: "
        "kernelmill problems import ScalingIntelligence/KernelBench makes it\n"
    )
    level = old.root / "data/kernelbench/level3"
    level.mkdir(parents=True)
    shutil.copy(next((ROOT / "data/problems/level3").glob("*_*.py")), level / "gpt_oss.py")
    assert old.do(line, plain=False).startswith("source      data/kernelbench (the default)\n")
    assert (old.root / "output/level3/gpt_oss/decomposition_tree.json").is_file()


SERVER = (
    "vllm serve --tensor-parallel-size=8 --async-scheduling --stream-interval 8 --enable-chunked-prefill "
    "--speculative-config.method mtp --speculative-config.num-speculative-tokens 1 --enable-prefix-caching"
)
"""The documented server, but for the model."""


def test_the_config_and_the_docs_start_the_documented_server_with_the_model_of_the_config() -> None:
    for page in ("configs/synth.toml", "docs/synthesize.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        begun = text[text.index("vllm serve ") :].splitlines()
        lines = begun[:1]
        while lines[-1].endswith("\\"):
            lines.append(begun[len(lines)])
        line = " ".join(" ".join(part.strip(" #\\") for part in lines).split())
        assert line == f"{SERVER} {MODEL}", page
    synth = tomllib.loads((ROOT / "configs/synth.toml").read_text(encoding="utf-8"))
    assert synth["model"]["name"] == MODEL


DOCUMENTED = {
    "filter_and_enrich_by_difficulty.py", "generate_prompts.py", "filter_unique_best.py", "analyze_seq_length.py",
    "remove_reasoning.py", "upload_datasets.py", "batch_decompose.py", "merge_triton_levels.py", "verify_merged_data.py",
}  # fmt: skip


def test_every_documented_command_is_there_and_in_the_table_of_old_commands() -> None:
    table = (ROOT / "scripts/README.md").read_text(encoding="utf-8")
    for name in DOCUMENTED:
        assert any((ROOT / folder / name).is_file() for folder in ("scripts", "data/kernel_bench")), name
        assert name in table, name
    for word in (
        "DATASET_PATH",
        "PROMPT_DATA",
        "TEST_MODE",
        "HF_TOKEN",
        "uv sync",
        "--by name",
        "BATCH_SIZE",
        "REWARD_THRESHOLD",
        "MODEL_NAME",
        "MAX_RETRIES",
        "72,648",
        "--max-unusable",
        "--give-up-after",
        "_report.txt",
        "--split-by rows",
        "prime-rl",
    ):
        assert word in table, word


def differences() -> list[list[str]]:
    """The rows of the table of differences in scripts/README.md: command, difference, reason."""
    text = (ROOT / "scripts/README.md").read_text(encoding="utf-8")
    table = text.partition("What differs from before, and why:\n\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert rows[0] == ["command", "difference", "reason"]
    return rows[2:]


def test_every_difference_from_the_old_documents_has_its_reason() -> None:
    rows = differences()
    assert len(rows) > 25
    for row in rows:
        assert len(row) == 3, row
        _, difference, reason = row
        assert len(difference.split()) >= 3, row
        assert len(reason.split()) >= 3, row
    assert rows[0][0]  # an empty first cell stands for the command above it
    named = " ".join(command for command, _, _ in rows)
    assert [name for name in sorted(DOCUMENTED) if name not in named] == []


CONSTANTS = {
    "BATCH_SIZE": ("rate", "concurrency"),
    "REWARD_THRESHOLD": ("rate", "threshold"),
    "MODEL": ("rate", "model"),
    "MODEL_NAME": ("lengths", "tokenizer"),
    "MAX_RETRIES": ("specs", "tries"),
}


def test_the_constants_of_the_old_scripts_are_flags_with_the_same_defaults() -> None:
    text = (ROOT / "scripts/README.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| `(\w+) = \"?([^`\"]+)\"?` \| `--(\w+) ([^`]+)`", text, re.MULTILINE)
    assert {name for name, *_ in told} == set(CONSTANTS)
    for name, value, flag, default in told:
        stage, field = CONSTANTS[name]
        assert (flag, default) == (field, value)
        assert str(stage_classes()[stage].model_fields[field].default) == value


def test_step_0_makes_as_many_rows_as_the_table_of_differences_says() -> None:
    synth = tomllib.loads((ROOT / "configs/synth.toml").read_text(encoding="utf-8"))
    rollouts = synth["env"][0]["rollouts_per_example"]
    told = [row for row in differences() if "candidates a module" in row[1]]
    assert f"asks for {rollouts} candidates a module: {rollouts * 18_162:,} rows" in told[0][1]
