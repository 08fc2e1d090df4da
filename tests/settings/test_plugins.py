"""Plug-ins: what an installed distribution adds is found by its name, and a broken one harms nobody else.

Each test puts a distribution, as an installer would leave it, on the path of a new process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kernelmill.cli import main
from kernelmill.errors import ConfigError
from kernelmill.evaluate.compile.targets import TARGETS, Target
from kernelmill.evaluate.options import Options, Pair
from kernelmill.problems.sets.trainers import TRAINERS
from kernelmill.settings import registry
from kernelmill.settings.providers import PROVIDERS
from kernelmill.settings.registry import Registry
from tests.conftest import ROOT, read_rows, write_rows
from tests.evaluate.verdicts import timed
from tests.problems.sets.test_export import a_set

Run = Callable[..., subprocess.CompletedProcess[str]]
CODE = """
import re
from kernelmill.evaluate.compile.targets import Target
from kernelmill.evaluate.score.rewards import Reward
from kernelmill.problems.sets.trainers import Trainer
from kernelmill.settings.providers import Provider
from kernelmill.tokens.chat_tokens import ChatTokenizer
from kernelmill.tokens.tokenizer_files import NamedTokenizer

REWARD = Reward(lambda verdict: 0.25, "always a quarter")
TARGET = Target("Jetson AGX Orin", 87, 163 << 10)
PROVIDER = Provider("Example", "EXAMPLE_CREDENTIAL", {"X-Example-Team": "EXAMPLE_TEAM"})
TRAINER = Trainer(
    "a trainer of mine", "mine:REWARD", "answer", lambda rows: ({"ask": row["prompt"]} for row in rows)
)


class Words:
    def measure(self, text, end=None):
        return len(text.split()), 0 if end is None else len(text[:end].split())


TOKENIZER = NamedTokenizer(
    "words",
    lambda files: ChatTokenizer(
        files, Words(), {"default": "{% for m in messages %}{{ m.content }} {% endfor %}"}, {}
    ),
)
"""
POINTS = {
    "kernelmill.rewards": {"quarter": "mine:REWARD"},
    "kernelmill.targets": {"sm_87": "mine:TARGET"},
    "kernelmill.providers": {"llm.example.com": "mine:PROVIDER"},
    "kernelmill.trainers": {"mine": "mine:TRAINER"},
    "kernelmill.tokenizers": {"words": "mine:TOKENIZER"},
}


def install(folder: Path, name: str, points: Mapping[str, Mapping[str, str]], code: str = "") -> Path:
    """Leave in `folder` what an installer leaves of a distribution with one module, called as it is."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    text = "".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items())
        for group, of in points.items()
    )
    (info / "entry_points.txt").write_text(text)
    (folder / f"{name}.py").write_text(code)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run Python, or with `mill` the command line, with the distributions of `tmp_path / "site"` installed."""

    def call(*line: object, code: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(
            [str(tmp_path / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", ""), str(ROOT)]
        )
        words = ["-c", code] if code else ["-m", "kernelmill", *map(str, line)]
        return subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "250", **env}, timeout=240,
        )  # fmt: skip

    return call


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install(tmp_path / "site", "mine", POINTS, CODE)


def test_a_reward_of_a_plugin_is_one_like_those_built_in(tmp_path: Path, site: Path, run: Run) -> None:
    write_rows(tmp_path / "verdicts.jsonl", [timed().to_dict()])
    done = run("rescore", "verdicts.jsonl", "-o", "out.jsonl", "--reward", "quarter")
    assert done.returncode == 0, done.stderr
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["reward"] == 0.25
    assert "quarter" not in row["rewards"], "the rewards of every verdict are those built in"
    assert "roofline, quarter, fast_<p>" in " ".join(run("rescore", "--help").stdout.split())


def test_a_provider_of_a_plugin_gives_its_key_to_its_host_alone(site: Path, run: Run) -> None:
    code = """
import asyncio
from kernelmill.llm.client import Endpoint
from kernelmill.settings.environment import redact
from kernelmill.settings.base import LLMSettings

async def headers(url):
    async with Endpoint(LLMSettings(base_url=url, model="m")) as endpoint:
        endpoint.check_key()
        return endpoint._session.headers

mine = asyncio.run(headers("https://llm.example.com/v1"))
assert mine["Authorization"] == "Bearer sk-example-1234", mine
assert mine["X-Example-Team"] == "team-5678", mine
assert redact("sk-example-1234 team-5678") == "[EXAMPLE_CREDENTIAL] [EXAMPLE_TEAM]"
other = asyncio.run(headers("https://other.example.com/v1"))
assert "Authorization" not in other and "X-Example-Team" not in other, other
"""
    done = run(code=code, EXAMPLE_CREDENTIAL="sk-example-1234", EXAMPLE_TEAM="team-5678")
    assert done.returncode == 0, done.stderr


def test_a_tokenizer_of_a_plugin_counts(tmp_path: Path, site: Path, run: Run) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"messages": [{"role": "user", "content": "one two three"}]}] * 3)
    done = run("lengths", "rows.jsonl", "--tokenizer", "words", "--json", "out.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["tokenizer"] | {"template_sha256": ""} == {
        "name": "words", "kind": "plug-in", "revision": "mine 1.0", "template_sha256": "",
    }  # fmt: skip
    (tmp_path / "words").mkdir()
    both = run("lengths", "rows.jsonl", "--tokenizer", "words")
    assert both.returncode == 2
    assert both.stderr.endswith(
        "--tokenizer words: a folder and the plug-in mine 1.0 have it: write ./words for the folder\n"
    )


def test_a_target_of_a_plugin_is_compiled_for_and_part_of_the_key(site: Path, run: Run) -> None:
    code = """
import asyncio
from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options
from kernelmill.sandbox import Sandbox
from tests.evaluate.compile.kernels_to_compile import launch, texts

options = Options(device="cpu", targets=("sm_90", "sm_87"))
Evaluator(options, workers=1).close()
assert options.key()["target sm_87"] == "mine 1.0"

with Sandbox(compiling.WORKER, workers=1, timeout=120, programs=compiling.programs()) as sandbox:
    launches = [launch("any_size", "x:*fp32 o:*fp32")]
    report = asyncio.run(compiling.cross_compile(sandbox, texts(), launches, ["sm_90", "sm_87"], 60.0))
assert [report["targets"][name]["ok"] for name in ("sm_90", "sm_87")] == [True, True], report
"""
    done = run(code=code)
    assert done.returncode == 0, done.stderr


def test_a_trainer_of_a_plugin_has_its_own_rows(tmp_path: Path, site: Path, run: Run) -> None:
    a_set(tmp_path / "data/kernelbench")
    done = run("problems", "export", "--format", "mine", "-o", "rl")
    assert done.returncode == 0, done.stderr
    assert [list(row) for row in read_rows(tmp_path / "rl/kernel_bench_triton_mine.jsonl")][:1] == [["ask"]]


@pytest.mark.heavy
def test_doctor_names_every_plugin_and_says_which_do_not_work(site: Path, run: Run) -> None:
    install(site, "broken", {"kernelmill.rewards": {"half": "broken:REWARD"}}, "import nothing_like_it")
    found = {one["what"]: one for one in json.loads(run("doctor", "--json").stdout)}
    ours = {f"{kind} {name}" for kind, name in (
        ("reward", "quarter"), ("target", "sm_87"), ("provider", "llm.example.com"), ("trainer", "mine"), ("tokenizer", "words"),
    )}  # fmt: skip
    assert {what for what in ours if found[what]["state"] == "yes"} == ours
    assert found["reward half"]["state"] == "no"
    assert "broken 1.0" in found["reward half"]["detail"]


BROKEN = {
    "import": ("import nothing_like_it", "ModuleNotFoundError: No module named 'nothing_like_it'"),
    "lines": ("raise ValueError('one\\ntwo')", "ValueError: one two"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "missing": ("", "AttributeError: module 'broken' has no attribute 'REWARD'"),
    "kind": ("REWARD = 1", "broken:REWARD is a int, not a Reward"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_plugin_is_one_line_that_names_it_and_fails_nobody_who_does_not_use_it(
    tmp_path: Path, run: Run, how: str
) -> None:
    code, why = BROKEN[how]
    install(tmp_path / "site", "broken", {"kernelmill.rewards": {"half": "broken:REWARD"}}, code)
    write_rows(tmp_path / "verdicts.jsonl", [timed().to_dict()])
    line = ("rescore", "verdicts.jsonl", "-o", "out.jsonl", "--reward")
    used = run(*line, "half")
    assert used.returncode == 2
    assert used.stderr == (
        f"kernelmill: reward half: the plug-in broken 1.0 does not work ({why}): update or uninstall it\n"
    )
    assert not (tmp_path / "out.jsonl").exists()
    assert run(*line, "correct").returncode == 0


def test_a_name_that_is_built_in_is_not_taken_over_in_silence(tmp_path: Path, run: Run) -> None:
    install(
        tmp_path / "site", "greedy", {"kernelmill.rewards": {"correct": "greedy:REWARD"}}, "raise ValueError"
    )
    write_rows(tmp_path / "verdicts.jsonl", [timed().to_dict()])
    line = ("rescore", "verdicts.jsonl", "-o", "out.jsonl", "--reward")
    done = run(*line, "correct")
    assert done.returncode == 2
    assert done.stderr == (
        "kernelmill: reward correct has several owners, kernelmill and greedy 1.0: "
        "uninstall a plug-in, or rename what it adds\n"
    )
    assert run(*line, "speedup").returncode == 0
    (row,) = read_rows(tmp_path / "out.jsonl")
    assert row["rewards"]["correct"] == 1.0, "the one that is built in"


def test_two_plugins_with_one_name_are_both_named(tmp_path: Path, run: Run) -> None:
    for name in ("first", "second"):
        install(tmp_path / "site", name, {"kernelmill.rewards": {"half": f"{name}:REWARD"}})
    write_rows(tmp_path / "verdicts.jsonl", [timed().to_dict()])
    done = run("rescore", "verdicts.jsonl", "-o", "out.jsonl", "--reward", "half")
    assert done.returncode == 2
    assert "reward half has several owners, " in done.stderr
    assert "first 1.0" in done.stderr
    assert "second 1.0" in done.stderr


def test_a_distribution_that_is_on_the_path_twice_is_one(tmp_path: Path, run: Run) -> None:
    install(tmp_path / "site", "mine", POINTS, CODE)
    install(tmp_path / "again", "mine", POINTS, CODE)
    code = (
        "import sys; sys.path.append('again')\n"
        "from kernelmill.evaluate.score.rewards import find; assert find('quarter').what == 'always a quarter'"
    )
    done = run(code=code)
    assert done.returncode == 0, done.stderr


def test_without_plugins_names_and_keys_are_those_built_in() -> None:
    assert TARGETS.names() == list(TARGETS)
    assert not [name for name in Options().key() if name.startswith("target ")]
    assert isinstance(Pair("1", "a", "b").key(Options()), str)
    with pytest.raises(ConfigError, match=r"^unknown target sm_9 \(did you mean sm_90\?\)$"):
        TARGETS.find("sm_9")


def test_a_built_in_entry_says_what_it_is_and_where_its_code_is() -> None:
    everything: list[Any] = [*TARGETS.values(), *TRAINERS.values(), *PROVIDERS.values()]
    assert all(entry.what for entry in everything)
    for trainer in TRAINERS.values():
        module, _, name = trainer.reward.partition(":")
        file = ROOT / "src" / f"{module.replace('.', '/')}.py"
        assert re.search(rf"^((async )?def |class )?{name}\b", file.read_text(), re.MULTILINE), trainer.reward


def test_no_plugin_is_looked_for_until_a_name_is_used(run: Run) -> None:
    code = """
import importlib.metadata
importlib.metadata.distributions = None
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.score import rewards
from kernelmill.rl import shared
Pair("1", "a", "b").key(Options())
assert len(rewards.REWARDS) == 12, list(rewards.REWARDS)
"""
    done = run(code=code)
    assert done.returncode == 0, done.stderr


def test_a_registry_lists_a_pattern_but_never_suggests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "plugins", list)
    some = Registry("target", "kernelmill.targets", Target, {"one": TARGETS["sm_80"]}, also="sm_<n>")
    assert some.listed() == "one, sm_<n>"
    with pytest.raises(ConfigError, match=r"^unknown target sm_n \(known: one, sm_<n>\)$"):
        some.find("sm_n")


@pytest.mark.heavy
def test_doctor_asks_every_registry(capsys: pytest.CaptureFixture[str]) -> None:
    from kernelmill.doctor import REGISTRIES

    files = {
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        for file in (ROOT / "src").rglob("*.py")
        if " = Registry(\n" in (text := file.read_text()) or ' = Registry("' in text
    } - {"kernelmill.settings.registry"}
    assert {reference.partition(":")[0] for reference in REGISTRIES} == files
    assert main(["doctor", "--json"]) == 0
    assert "plug-in" not in capsys.readouterr().out
