"""The training examples: TRL's runs here, the others name what is there and what the libraries installed here take."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmill.cli import main
from kernelmill.problems.sets.levels import level_file, merged_file
from kernelmill.rl import shared
from kernelmill.settings.environment import environment
from tests.conftest import ROOT
from tests.generate.synthesize.tiny_model import write_model
from tests.problems.sets.test_export import a_set
from tests.rl.stub import Stub, verdict

EXAMPLES = ROOT / "examples"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_example_for_trl_trains_a_tiny_model_on_exported_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trl")
    a_set(Path("data/kernelbench"))
    assert main(["problems", "export", "--format", "trl", "-o", "rl"]) == 0
    model = write_model(tmp_path / "model")
    with Stub(always=lambda body: (200, verdict(0.5))) as stub:
        monkeypatch.setenv("KERNEL_REWARD_URL", stub.url)
        environment.cache_clear()
        line = [
            "--model",
            str(model),
            "--data",
            "rl/kernel_bench_triton_trl.jsonl",
            "--output",
            "out",
            "--cpu",
        ]
        line += ["--steps", "2", "--generations", "2", "--max-completion-length", "8"]
        monkeypatch.setattr(sys, "argv", ["trl_grpo.py", *line])
        try:
            runpy.run_path(str(EXAMPLES / "trl_grpo.py"), run_name="__main__")
        finally:
            shared.close()
            environment.cache_clear()
    assert "step 2: reward 0.500, masked 0.00" in capsys.readouterr().out
    assert Path("out/model.safetensors").exists()
    # What is judged is a completion, against the reference of its own row.
    assert len(stub.bodies) == 4
    assert all("class Model" in body["reference"] for body in stub.bodies)


def _text(name: str) -> str:
    return (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["verl_grpo.sh", "slime_grpo.sh"])
def test_functions_that_a_script_names_are_there(name: str) -> None:
    text = _text(name)
    named = re.findall(r"kernelmill\.rl\.slime\.(\w+)", text)
    if name.startswith("verl"):
        assert "path=pkg://kernelmill.rl.verl" in text
        named = re.findall(r"custom_reward_function\.name=(\w+)", text)
    module = importlib.import_module(f"kernelmill.rl.{name.partition('_')[0]}")
    assert named
    assert all(callable(getattr(module, function)) for function in named)


def test_data_that_an_example_reads_is_what_export_writes() -> None:
    out = Path("outputs/rl")
    assert str(merged_file(out, [1, 2, 3])) in _text("slime_grpo.sh")
    stem = level_file(out, 1).name.removesuffix("_level_1.jsonl")
    assert f"{out}/{stem}_verl.parquet" in _text("verl_grpo.sh")
    assert f"{out}/{stem}_prime.jsonl" in _text("prime_rl.toml")
    assert f"{out}/{stem}_trl.jsonl" in _text("trl_grpo.py")


@pytest.mark.heavy
def test_the_taskset_of_the_example_for_prime_rl_is_one_that_verifiers_takes() -> None:
    pytest.importorskip("verifiers.v1")
    from kernelmill.rl.taskset import KernelTasksetConfig

    config: dict[str, Any] = tomllib.loads(_text("prime_rl.toml"))
    (source,) = config["orchestrator"]["train"]["source"]
    taskset = source["env"]["taskset"]
    found = KernelTasksetConfig.model_validate(taskset)
    assert (found.id, found.task.url) == ("kernelmill-env", shared.URL)


def test_the_trainers_own_configurations_took_the_examples_as_they_are_now() -> None:
    """bench/examples_parsed.py asked them; an example that was changed since has to be asked for again."""
    found = json.loads((ROOT / "bench/results/examples_parsed.json").read_text(encoding="utf-8"))["examples"]
    assert {"verl_grpo.sh", "slime_grpo.sh", "prime_rl.toml"} == set(found)
    for name, one in found.items():
        assert one["sha256"] == hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest(), name
    assert found["slime_grpo.sh"]["unknown"] == []
    written = re.findall(r"^ +(--[\w-]+)", _text("slime_grpo.sh"), re.MULTILINE)
    assert len(written) > 30
    assert set(written) <= {"--runtime-env-json", *found["slime_grpo.sh"]["flags"]}
    settings = found["verl_grpo.sh"]["settings"]
    assert set(re.findall(r"^  ([a-z_.]+)=", _text("verl_grpo.sh"), re.MULTILINE)) == set(settings)
    assert settings["reward.custom_reward_function.path"] == "pkg://kernelmill.rl.verl"
    # What examples/README.md says of versions.
    told = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"verl {found['verl_grpo.sh']['version']}" in told
    prime = found["prime_rl.toml"]
    assert f"prime-rl {prime['version']}" in told
    assert f"verifiers {prime['versions']['verifiers']}" in told
    for commit in (*found["slime_grpo.sh"]["commits"].values(), prime["commit"]):
        assert re.fullmatch("[0-9a-f]{40}", commit)


def test_prime_rls_own_classes_have_every_setting_of_the_example() -> None:
    found = json.loads((ROOT / "bench/results/examples_parsed.json").read_text(encoding="utf-8"))["examples"]
    prime = found["prime_rl.toml"]
    parts = dict(_parts(tomllib.loads(_text("prime_rl.toml"))))
    tables = {path for path, value in parts.items() if isinstance(value, dict)}
    values = {path: value for path, value in parts.items() if path not in tables}
    assert len(values) > 10
    assert values.items() <= prime["settings"].items()
    # Being taken says something only where a key that is not there is refused.
    assert set(prime["unknown_keys_refused_in"]) == tables
    taskset = "orchestrator.train.source.0.env.taskset"
    assert prime["settings"][taskset] == "kernelmill.rl.taskset.KernelTasksetConfig"


def _parts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Tables and values of a TOML file by their dotted paths."""
    if not isinstance(value, list):
        yield path, value
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _parts(one, f"{path}.{key}" if path else str(key))
