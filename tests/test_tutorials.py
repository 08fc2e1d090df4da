"""The tutorials are true: their commands and programs run in order, and print what the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, command
from tests.generate.synthesize.tiny_model import write_model

PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
_BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d[\d.,:]*")
_ELSEWHERE = ("pip ", "make ", "uv ")
"""What installs: that was done before the tests."""
_ENDPOINT, _SERVICE, _MODEL = "http://127.0.0.1:8000/v1", "18188", "Qwen/Qwen3-0.6B"


def blocks(page: Path, here: dict[str, str]) -> Iterator[tuple[str, str]]:
    """With what is on a network in its place here."""
    text = page.read_text(encoding="utf-8")
    for name, instead in here.items():
        text = text.replace(name, instead)
    yield from _BLOCK.findall(text)


def printed(expected: str, got: str) -> bool:
    """Whether the expected lines were printed, in order. Numbers may differ, and `…` stands for anything."""
    pattern = r".*?".join(
        r"^\s*" + re.escape(_NUMBER.sub("0", line.strip())).replace("…", ".*")
        for line in expected.splitlines()
    )
    return re.search(pattern, _NUMBER.sub("0", got), re.MULTILINE | re.DOTALL) is not None


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.timeout(900)
@pytest.mark.heavy
def test_a_tutorial_does_what_it_says(tmp_path: Path, page: Path, mill: Callable[..., Any]) -> None:
    for folder in ("data", "configs", "prompts", "examples"):
        if (ROOT / folder).exists():
            shutil.copytree(ROOT / folder, tmp_path / folder)
    with ExitStack() as stack:
        endpoint = stack.enter_context(FakeEndpoint())
        port, output = free_port(), ""
        env = {"KERNEL_REWARD_URL": f"http://127.0.0.1:{port}"}
        here = {_ENDPOINT: endpoint.base_url, _SERVICE: str(port)}
        if _MODEL in page.read_text(encoding="utf-8"):
            here[_MODEL] = str(write_model(tmp_path / "model"))
        for kind, block in blocks(page, here):
            if kind == "text":
                assert printed(block, output), f"{page.name} says:\n{block}\nand this was printed:\n{output}"
                continue
            lines = [(["python", "-c", block], 0)] if kind == "python" else list(commands(block))
            output = ""
            for words, code in lines:
                if words[0] == "kernelmill" and words[-1] != "&":
                    done = mill(*words[1:], env=env)
                else:
                    done = process(words, tmp_path, env, stack)
                if done is None:
                    continue
                output += done.stdout + done.stderr
                assert done.returncode == code, f"{page.name}: {block}\n{output}"


def commands(block: str) -> Iterator[tuple[list[str], int]]:
    """Each command, and the exit code that the page says it has: 0, or that of a comment `# exit code 3`."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and not line.startswith(_ELSEWHERE):
            assert words[0] in ("python", "kernelmill"), line
            said = re.search(r"# exit code (\d+)$", line)
            yield words, int(said[1]) if said else 0


def process(words: list[str], folder: Path, env: dict[str, str], stack: ExitStack) -> Any:
    """What became of it; None where it is to run on beside what follows."""
    line = command(*words[1:]) if words[0] == "kernelmill" else [sys.executable, *words[1:]]
    env = {**os.environ, **env}
    if words[-1] == "&":
        stack.callback(ended, subprocess.Popen(line[:-1], cwd=folder, env=env))
        return None
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True)


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


def test_the_page_on_judging_shows_the_check_in_ci_that_it_promises() -> None:
    text = next(page for page in PAGES if page.stem == "judge-a-kernel").read_text(encoding="utf-8")
    assert "check in CI" in text.partition("## ")[0].replace("\n", " ")
    lines = [line for kind, block in _BLOCK.findall(text) if kind == "bash" for line in commands(block)]
    codes = {code for words, code in lines if "--fail-on" in words and "incorrect,hack" in words}
    assert codes == {0, 3}
