"""The commands that make a dataset again are commands that the program takes."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

import pytest

from kernelmill.cli import main
from kernelmill.flow import COMMANDS
from kernelmill.generate.synthesize.config_file import load_settings
from kernelmill.publish.rebuild import command_of
from kernelmill.settings.arguments import config_file
from kernelmill.settings.commands import parser_of
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.generate.synthesize.answers import PROSE, problem
from tests.generate.synthesize.answers import manifest as read_manifest


@pytest.mark.parametrize("sets", [1, 2])
def test_sets_of_problems_are_given_as_a_config_file_that_the_command_reads(
    tmp_path: Path, sets: int
) -> None:
    problem(tmp_path / "one", "A", "B")
    problem(tmp_path / 'two "b"', "C")
    tables = [
        "[[env]]\nid = 'one'\nname = 'first'\nnum_examples = 1\nrollouts_per_example = 2\n",
        "[[env]]\nid = 'two \"b\"'\nskip_first = 0\n",
    ]
    (tmp_path / "told.toml").write_text("".join(tables[:sets]))
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        told = ["--base-url", endpoint.base_url, "--model", "fake", "--device", "cpu", "--turns", "2"]
        assert main(["synthesize", "@", "told.toml", "-o", "out.jsonl", *told]) == 0
    note, line = command_of(read_manifest())
    name, _, content = note.removeprefix("# ").partition(": ")
    Path(name).write_text(content)
    assert tomllib.loads(content)["env"][0]["id"] == "one"
    words = shlex.split(line)
    assert words[:2] == ["kernelmill", "synthesize"]
    assert "--env" not in words
    file, rest = config_file(words[2:])
    flags = vars(parser_of(COMMANDS["synthesize"]).parse_args(rest))
    flags["base_url"] = "http://127.0.0.1:9/v1"  # a private address is left out
    again, first = load_settings(flags, file), load_settings({}, tmp_path / "told.toml")
    assert again.sets() == first.sets()
    assert (again.turns, again.model) == (2, "fake")


def test_a_set_on_the_hub_is_named_with_its_revision() -> None:
    table = {"id": "org/name", "name": None, "args": {"split": "train"}, "num_examples": -1}
    origin = {"kind": "hub", "repo": "org/name", "revision": "abc"}
    made = {"stage": "synthesize", "source": origin, "config": {"env": [table]}}
    note, _ = command_of(made)
    (found,) = tomllib.loads(note.partition(": ")[2])["env"]
    assert found == {"id": "org/name@abc", "args": {"split": "train"}, "num_examples": -1}
