"""Whether the trainers take the settings of our training examples.

    python bench/examples_parsed.py --verl PYTHON
    python bench/examples_parsed.py --slime PATH --megatron PATH --sglang PATH
    python bench/examples_parsed.py --prime-rl PYTHON --prime-rl-checkout PATH

Any of these together; a trainer that is not given keeps its last result. A PATH is a checkout, or a git directory whose HEAD is read; a PYTHON is one in which
the trainer is installed. Of verl, hydra-core beside it is enough; of prime-rl, its package prime-rl-configs, which is not published and is installed from
the checkout (`pip install PATH/packages/prime-rl-configs`, in Python 3.12). The shell scripts run as they are, with programs in place of `python3` and
`ray` that write down their arguments:

- verl: its own Hydra config is composed with the arguments. Hydra refuses a key that the config does not have.
- slime: every flag, those of the sourced model included, is one that slime, Megatron-LM or SGLang defines: in a call of `add_argument`, or as a field of a
  class that their parsers are made from. Read from the sources; values are not looked at.
- prime-rl: its own class validates the TOML file, and must refuse a key that it does not have in every table of the file. What each setting became is
  written down. The installed classes are those of the checkout: the files are compared.

Writes examples_parsed.json into bench/results, with versions, commits, dates and the hash of each example. Nothing is trained.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import RESULTS, commit_of, machine, save, text_of

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
RECORDER = """#!{python}
import json, os, sys
with open(os.environ["RECORDED"], "a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
"""
COMPOSE = """
import importlib.metadata, importlib.util, json, sys
from pathlib import Path
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

folder = Path(importlib.util.find_spec("verl").origin).parent / "trainer/config"
arguments = json.load(sys.stdin)
with initialize_config_dir(str(folder), version_base=None):
    config = compose("ppo_trainer", arguments)
found = {key: OmegaConf.select(config, key) for key in (one.partition("=")[0].lstrip("+") for one in arguments)}
found = {key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value for key, value in found.items()}
print(json.dumps({"version": importlib.metadata.version("verl"), "settings": found}))
"""
VALIDATE = """
import copy, hashlib, importlib.metadata, json, platform, sys, tomllib
from pathlib import Path
import prime_rl.configs
from prime_rl.configs.rl import RLConfig
from pydantic import BaseModel, ValidationError

given = tomllib.load(sys.stdin.buffer)

def walk(value, *path):
    yield path, value
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from walk(one, *path, key)

def at(value, path):
    for key in path:
        value = getattr(value, key) if isinstance(value, BaseModel) else value[key]
    return value

def written(value):
    plain = value is None or isinstance(value, (bool, int, float, str))
    return f"{type(value).__module__}.{type(value).__name__}" if isinstance(value, BaseModel) else value if plain else str(value)

config = RLConfig.model_validate(copy.deepcopy(given))
refused = []
for path, value in walk(given):
    if isinstance(value, dict):
        wrong = copy.deepcopy(given)
        at(wrong, path)["not_a_setting"] = 1
        try:
            RLConfig.model_validate(wrong)
        except ValidationError as error:
            assert "not_a_setting" in str(error) and "Extra inputs are not permitted" in str(error), error
            refused.append(".".join(map(str, path)))
        else:
            sys.exit(f"a key that is not there is taken in {path}")
settings = {".".join(map(str, path)): written(at(config, path)) for path, value in walk(given) if path and not isinstance(value, list)}
names = ("prime-rl-configs", "prime-pydantic-config", "renderers", "verifiers", "pydantic")
versions = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
folder = Path(prime_rl.configs.__file__).parent
files = {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in sorted(folder.glob("*.py"))}
print(json.dumps({"versions": versions, "settings": settings, "unknown_keys_refused_in": refused, "files": files}))
"""
PRIME_RL = "packages/prime-rl-configs/src/prime_rl/configs"
SLIME = ("slime/utils/arguments.py", "slime/backends/sglang_utils/arguments.py")
MEGATRON = (
    "megatron/training/arguments.py", "megatron/training/config/common_config.py", "megatron/training/config/training_config.py",
    "megatron/core/model_parallel_config.py", "megatron/core/transformer/transformer_config.py",
)  # fmt: skip
SGLANG = "python/sglang/srt/server_args.py"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("verl", "slime", "megatron", "sglang", "prime-rl", "prime-rl-checkout"):
        parser.add_argument(f"--{name}", type=Path)
    given = parser.parse_args()
    for together in (("slime", "megatron", "sglang"), ("prime_rl", "prime_rl_checkout")):
        if len({getattr(given, name) is None for name in together}) > 1:
            parser.error(f"only together: {', '.join(together)}")
    asked_for: dict[str, dict[str, Any]] = {}
    if given.verl:
        asked_for["verl_grpo.sh"] = verl(given.verl)
    if given.slime:
        asked_for["slime_grpo.sh"] = slime(given)
    if given.prime_rl:
        asked_for["prime_rl.toml"] = prime_rl(given.prime_rl, given.prime_rl_checkout)
    if not asked_for:
        parser.error("name a trainer")
    for name, one in asked_for.items():
        one["date"] = machine()["date"]
        one["sha256"] = hashlib.sha256((EXAMPLES / name).read_bytes()).hexdigest()
    last = RESULTS / "examples_parsed.json"
    kept = json.loads(last.read_text(encoding="utf-8"))["examples"] if last.exists() else {}
    save("examples_parsed", {"examples": {**kept, **asked_for}})
    return 1 if asked_for.get("slime_grpo.sh", {}).get("unknown") else 0


def verl(python: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        ((_, dash_m, module, *settings),) = recorded(EXAMPLES / "verl_grpo.sh", Path(folder))
    assert (dash_m, module) == ("-m", "verl.trainer.main_ppo")
    return asked(python, COMPOSE, json.dumps(settings))


def prime_rl(python: Path, checkout: Path) -> dict[str, Any]:
    # The taskset that the example names is ours, and prime-rl imports it.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    text = (EXAMPLES / "prime_rl.toml").read_text(encoding="utf-8")
    found = asked(python, VALIDATE, text, env)
    for name, installed in found.pop("files").items():
        source = text_of(checkout, f"{PRIME_RL}/{name}")
        if hashlib.sha256(source.encode()).hexdigest() != installed:
            raise SystemExit(f"{name} of prime-rl-configs is not installed as the checkout has it")
    version = tomllib.loads(text_of(checkout, "pyproject.toml"))["project"]["version"]
    return {"version": version, "commit": commit_of(checkout), **found}


def asked(python: Path, program: str, text: str, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What a program says in the Python of a trainer."""
    line = [str(python), "-c", program]
    done = subprocess.run(line, input=text, capture_output=True, text=True, env=env)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def slime(given: argparse.Namespace) -> dict[str, Any]:
    """Where each flag of the script is defined."""
    with tempfile.TemporaryDirectory() as name:
        folder, model = Path(name), Path("scripts/models/qwen3-4B.sh")
        (folder / model).parent.mkdir(parents=True)
        (folder / model).write_text(text_of(given.slime, str(model)))
        _, submitted = recorded(EXAMPLES / "slime_grpo.sh", folder, MEGATRON_LM="Megatron-LM")
    arguments = submitted[submitted.index("train.py") + 1 :]
    flags = dict.fromkeys(word.partition("=")[0] for word in arguments if word.startswith("--"))
    known = {
        "slime": set().union(*(defined(text_of(given.slime, file)) for file in SLIME)),
        "megatron": set().union(*(defined(text_of(given.megatron, file)) for file in MEGATRON)),
        "sglang": {f"--sglang-{flag[2:]}" for flag in defined(text_of(given.sglang, SGLANG))},
    }
    where = {flag: next((who for who, names in known.items() if flag in names), None) for flag in flags}
    commits = {who: commit_of(getattr(given, who)) for who in known}
    return {
        "commits": commits,
        "flags": where,
        "unknown": [flag for flag, who in where.items() if who is None],
    }


def defined(source: str) -> set[str]:
    """The flags that a file defines: named in calls, listed as names of a field, or made from a field of a class."""
    return set(_defined(ast.parse(source)))


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument") | ast.Name(id="reset_arg"), args=given):
                yield from _texts(given)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == "arg_names":
                        yield from _texts(getattr(value, "elts", []))
            case ast.ClassDef(body=body):
                for one in body:
                    if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                        yield f"--{one.target.id.replace('_', '-')}"


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value


def recorded(script: Path, folder: Path, **env: str) -> list[list[str]]:
    """The arguments of `python3` and `ray` in the order in which a script calls them; nothing of them runs."""
    programs, calls = folder / "programs", folder / "calls.jsonl"
    programs.mkdir()
    for name in ("python3", "ray"):
        (programs / name).write_text(RECORDER.format(python=sys.executable))
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        ["bash", str(script)], check=True, cwd=folder, env={**os.environ, "PATH": path, "RECORDED": str(calls), **env}
    )  # fmt: skip
    return [json.loads(line) for line in calls.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
