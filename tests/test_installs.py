"""What is said about installing beside others is what was resolved, with the dependencies that the package has now."""

from __future__ import annotations

import json
import re
import runpy
import tomllib
from typing import Any

from tests.conftest import ROOT

FOUND: dict[str, Any] = json.loads((ROOT / "bench/results/installs.json").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_table_was_made_with_todays_dependencies_and_stands_on_the_page() -> None:
    again = "run bench/installs.py again"
    assert FOUND["dependencies"] == PROJECT["dependencies"], again
    table = runpy.run_path(str(ROOT / "bench/installs.py"))["table"](FOUND)
    assert table in (ROOT / "docs/install.md").read_text(), again


def test_the_core_resolves_beside_every_server_and_trainer() -> None:
    rows = {row["target"]: row for row in FOUND["targets"]}
    assert {"sglang", "slime with sglang", "verl", "TRL", "verifiers", "prime-rl", "vLLM"} <= rows.keys()
    assert [name for name, row in rows.items() if row["resolves"] is not True] == []
    moved = {name for row in rows.values() for name in row["changed"]}
    assert not moved & {
        "torch",
        "triton",
        "openai",
        "transformers",
        "huggingface-hub",
        "vllm",
        "sglang",
        "datasets",
        "ray",
    }


def test_the_core_pins_nobody_elses_stack() -> None:
    """No client of a model's vendor, and no upper bound but pydantic's next generation, which would break us and others alike."""
    for wanted in PROJECT["dependencies"]:
        name = re.split(r"[\[<>=!~]", wanted)[0]
        assert name not in ("openai", "httpx", "httpx2", "torch", "transformers", "datasets")
        assert name == "pydantic" or not re.search(r"[<=~]=?\d|,<", wanted.replace(">=", ">")), wanted
