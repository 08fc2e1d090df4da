"""The README and the docs are true: commands run, option lists are the program's own, files exist."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kernelmill.base.columns import ADDED, EVALS, KERNELBENCH, KERNELBOOK, SPECIFICATION, Column
from kernelmill.flow import COMMANDS
from kernelmill.settings.commands import parser_of
from kernelmill.settings.fields import BASE
from kernelmill.settings.registry import stage_classes
from kernelmill.testing.fake_endpoint import FakeEndpoint
from kernelmill.testing.fake_hub import FakeHub
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = ("run", "decompose", "synthesize")
EXAMPLE_URL = "http://127.0.0.1:8000/v1"
READS_THE_HUB = "configs/pipeline.toml"


def commands_of(page: Path) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("make ", "python -m kernelmill.testing"))]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.heavy if page.stem in SLOW else ())
        for page in PAGES
        if commands_of(page)
    ],
)
@pytest.mark.timeout(900)
def test_every_command_of_a_page_runs_in_the_order_it_stands(
    tmp_path: Path, page: Path, mill: Callable[..., Any], mill_process: Callable[..., Any]
) -> None:
    for folder in ("data", "configs", "prompts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    with FakeEndpoint() as endpoint, FakeHub() as hub:
        # The config names the real endpoint and the real dataset, which no test may call.
        hub.put("dataset", BASE, {"train.jsonl": (ROOT / "data/samples/evals.jsonl").read_bytes()})
        env = {**hub.environment(), "KERNELMILL_BASE_URL": endpoint.base_url}
        before = ["kernelmill rate data/samples/evals.jsonl"] if page.stem == "llm" else []
        for line in [*before, *commands_of(page)]:
            words = shlex.split(line.replace(EXAMPLE_URL, endpoint.base_url))
            assert words[0] == "kernelmill", f"{page.name}: {line}"
            # The Hub's client reads where the Hub is when it is imported.
            run = mill_process if READS_THE_HUB in line else mill
            done = run(*words[1:], env=env)
            assert done.returncode == 0, f"{page.name}: {line}\n{done.stderr}"


HELP = re.compile(r"<!-- help: ([\w-]+) -->\n.*?<!-- /help -->", re.DOTALL)
PAGE_OF = {name: page for page in PAGES for name in HELP.findall(page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("name", PAGE_OF)
def test_the_option_list_in_the_docs_is_the_programs_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    page = PAGE_OF[name]
    text = page.read_text(encoding="utf-8")
    parser = parser_of(COMMANDS[name])
    words = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    parsers = [parser, *(inner for one in words for inner in one.choices.values())]
    blocks = "\n\n".join(f"```\n{one.format_help()}```" for one in parsers)

    def own(found: re.Match[str]) -> str:
        return f"<!-- help: {name} -->\n{blocks}\n<!-- /help -->" if found[1] == name else found[0]

    new = HELP.sub(own, text)
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(new, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == new, (
        "run UPDATE_DOCS=1 pytest tests/test_docs.py -k option_list"
    )


def test_every_command_has_its_option_list_in_the_docs_and_a_stage_on_its_own_page() -> None:
    assert COMMANDS.keys() - PAGE_OF == {
        "bench-model",
        "show",
        "journal",
        "doctor",
    }
    assert [name for name in (*stage_classes(), "run") if PAGE_OF[name].stem != name] == []


def column_list(title: str, columns: Iterable[Column]) -> str:
    lines = [f"{title}:", "", "| column | type | meaning |", "|---|---|---|"]
    for column in columns:
        # On a dataset card, "(see Reward)" leads to one of its sections.
        meaning = re.sub(r" \(see \w+\)", "", column.meaning)
        required = ", required" if column.rule == "required" else ""
        lines.append(f"| `{column.name}` | {type_in_words(column.type)}{required} | {meaning} |")
    return "\n".join(lines)


def type_in_words(kind: Any) -> str:
    if isinstance(kind, list):
        return f"list of {type_in_words(kind[0])}"
    if isinstance(kind, dict):
        return f"object ({', '.join(f'`{name}`' for name in kind)})"
    return {"difficulty": "text", "json": "object or list"}.get(kind, kind)


def test_the_column_list_in_the_docs_is_the_declared_one() -> None:
    formats = {
        "Evals rows": EVALS, "KernelBook rows": KERNELBOOK, "KernelBench rows": KERNELBENCH, "Specifications": SPECIFICATION,
        **{f"Added by `{command}`": columns for command, columns in ADDED.items()},
    }  # fmt: skip
    lists = "\n\n".join(column_list(title, columns) for title, columns in formats.items())
    page = ROOT / "docs/commands.md"
    new = re.sub(
        r"<!-- columns -->.*<!-- /columns -->",
        lambda _: f"<!-- columns -->\n{lists}\n<!-- /columns -->",
        page.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(new, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == new, "run UPDATE_DOCS=1 pytest tests/test_docs.py"


def test_links_and_paths_in_the_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "scripts/README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    tree = (ROOT / "README.md").read_text(encoding="utf-8").split("## Where things are")[1]
    for name in re.findall(r"^(?:  )?([\w./]+?/?)\s{2,}", tree, re.MULTILINE):
        assert any((base / name).exists() for base in (ROOT, ROOT / "src/kernelmill")), f"README names {name}"


def test_the_pages_agree_that_level_4_is_judged_where_transformers_is_installed() -> None:
    told = [
        f"{page.name}: {line}"
        for page in sorted((ROOT / "docs").glob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(r"level 4.*\bjudged\b", line, re.I)
    ]
    assert len(told) >= 2
    assert [line for line in told if "not judged" in line or "transformers" not in line] == []


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`kernelmill {name}`" not in text] == []


def test_the_testing_page_runs() -> None:
    text = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        subprocess.run([sys.executable, "-c", block], check=True, timeout=240)
    served = subprocess.Popen(
        [sys.executable, "-m", "kernelmill.testing.fake_endpoint", "--script", '{"500": 0.1}'],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert served.stdout is not None
    assert served.stdout.readline().startswith("http://127.0.0.1:")
    served.terminate()
    served.wait(240)
    served.stdout.close()
