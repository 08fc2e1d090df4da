"""The vocabulary of the command line: one flag has one meaning, one kind of value and one way of saying so, in every command."""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kernelmill import cli
from kernelmill.arguments import Parser
from kernelmill.decompose.command import levels_of
from kernelmill.errors import ConfigError
from kernelmill.flow import COMMANDS
from kernelmill.stages import stage_settings
from tests.conftest import evals_row, write_rows

MEANINGS = {
    "--config": ("FILE", r"TOML file \(same as @ FILE\)"),
    "--split": ("NAME", r"one split of a Hub dataset"),
    "--limit": ("N", r"the first N \w+ only"),
    "--timeout": ("SECONDS", r"seconds one .*may take"),
    "--workers": ("N", r"\w+ at a time \(default: "),
    "--device": ("cpu|cuda|auto", r"where candidates are judged"),
    "--levels": ("1,2", r"levels"),
    "--seed": ("N", r"with|shuffle|secret"),
    "--json": (None, r"print JSON"),
    "--tf32": (None, r"products of float32 may round their operands"),
    "--dry-run": (None, r"^say "),
    "--test-mode": (None, r"^first 5 rows only"),
    "--on-bad-row": ("stop|reject", r"a row that cannot be read"),
    "--entry-point": ("CLASS", r"class"),
}
SEVERAL = {"--output": {"FILE", "FOLDER"}, "--from": {"STEP", "ROW"}}
"""Flags whose value is one of two things, and the metavar says which."""
METAVARS = {
    "FILE",
    "FOLDER",
    "N",
    "NAME",
    "SECONDS",
    "MINUTES",
    "DOLLARS",
    "SHARE",
    "REWARD",
    "URL",
    "MODEL",
    "SOURCE",
    "TARGET",
    "TEXT",
    "CLASS",
    "STEP",
    "ROW",
    "MB",
    "ADDRESS",
    "INPUTS",
    "ARGUMENTS",
    "VERDICTS",
}


class Flag(NamedTuple):
    command: str
    action: argparse.Action

    @property
    def metavar(self) -> str | None:
        if self.action.nargs == 0 or isinstance(self.action, argparse.BooleanOptionalAction):
            return None
        choices = self.action.choices
        return self.action.metavar or (choices and "|".join(choices)) or "?"  # type: ignore[return-value]


class _Caught(Exception):
    pass


@pytest.fixture
def flags(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Flag]]:
    """Every flag by its name, without old spellings."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        caught.append(parser)
        raise _Caught

    monkeypatch.setattr(Parser, "parse_known_args", catch)
    found: dict[str, list[Flag]] = defaultdict(list)
    for name in COMMANDS:
        with pytest.raises(_Caught):
            cli._run([name])
        for command, parser in _parsers(name, caught.pop()):
            for action in parser._actions:
                if long := [flag for flag in action.option_strings if flag.startswith("--")]:
                    found[long[0]].append(Flag(command, action))
    return found


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    words = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not words:
        yield name, parser
    for action in words:
        for word, inner in action.choices.items():
            yield from _parsers(f"{name} {word}", inner)


def test_one_flag_has_one_meaning_in_every_command(flags: dict[str, list[Flag]]) -> None:
    wrong = [
        f"{one.command} {name} {one.metavar}: {one.action.help}"
        for name, (metavar, meaning) in MEANINGS.items()
        for one in flags[name]
        if one.metavar != metavar or not re.search(meaning, one.action.help or "")
    ]
    assert wrong == []


def test_one_flag_takes_one_kind_of_value_and_its_name_in_the_help_is_a_word(
    flags: dict[str, list[Flag]],
) -> None:
    for name, uses in flags.items():
        metavars = {one.metavar for one in uses}
        if name in SEVERAL:
            assert metavars <= SEVERAL[name], name
        elif not all("|" in (metavar or "") for metavar in metavars):
            assert len(metavars) == 1, f"{name}: {metavars}"
        for metavar in metavars - {None}:
            assert metavar is not None
            # A word, words to choose from, or an example of what to write.
            assert metavar in METAVARS or re.search(r"[|,=:]|^[a-z]+$", metavar), f"{name} {metavar}"


def test_every_command_takes_a_config_file(flags: dict[str, list[Flag]]) -> None:
    commands = {one.command.split()[0] for one in flags["--config"]}
    assert commands == set(COMMANDS)


def test_a_tool_takes_its_settings_from_a_table_of_its_own_and_flags_win(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(6)])
    (tmp_path / "c.toml").write_text('[show]\nsource = "rows.jsonl"\nlimit = 2\ncolumns = "example_id"\n')
    for line in (["@", "c.toml"], ["@c.toml"], ["--config", "c.toml"], ["--config=c.toml"]):
        assert mill("show", *line).stdout.count("example_id") == 2
    assert mill("show", "@", "c.toml", "--limit", 4).stdout.count("example_id") == 4
    write_rows(tmp_path / "other.jsonl", [evals_row(1)])
    assert mill("show", "other.jsonl", "@", "c.toml").stdout.count("example_id") == 1
    (tmp_path / "wrong.toml").write_text("[show]\nlimits = 2\n")
    done = mill("show", "@", "wrong.toml")
    assert done.returncode == 2
    assert "wrong.toml: [show] has no setting limits" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    missing = mill("doctor", "@", "nowhere.toml")
    assert missing.returncode == 2
    assert "nowhere.toml: No such file" in missing.stderr


def test_words_of_a_tool_have_tables_within_its_own(tmp_path: Path) -> None:
    from kernelmill.problem_sets.command import parser

    (tmp_path / "c.toml").write_text(
        '[problems.import]\nsource = "here"\nworkers = 3\nforce = true\n[problems.list]\nlevels = [1, 2]\n'
    )
    given = parser().parse_args(["import", "@", str(tmp_path / "c.toml")])
    assert (given.source, given.workers, given.force) == ("here", 3, True)
    assert parser().parse_args(["list", "@", str(tmp_path / "c.toml")]).levels == parser().parse_args(
        ["list", "--levels", "1,2"]
    ).levels  # fmt: skip


def test_levels_of_parts_are_counted_as_in_a_problem_set_and_names_still_do() -> None:
    assert levels_of("1,2") == levels_of("fusion,kernel") == ("kernel", "fusion")
    assert levels_of("4") == ("model",)
    with pytest.raises(argparse.ArgumentTypeError, match="1 kernel, 2 fusion, 3 layer, 4 model"):
        levels_of("5")


@pytest.mark.parametrize(
    ("given", "split", "by"),
    [
        ({}, None, "auto"),
        ({"split": "train"}, "train", "auto"),
        ({"split": "rows"}, None, "rows"),
        ({"split": "none", "split_by": "groups"}, None, "groups"),
        ({"split_by": "rows", "split": "test"}, "test", "rows"),
        ({"split": "none", "source_split": "test"}, "test", "none"),
    ],
)
def test_publish_reads_a_split_like_everybody_and_its_old_words_still_do(
    given: dict[str, str], split: str | None, by: str
) -> None:
    settings: Any = stage_settings("publish", given, None)
    assert (settings.split, settings.split_by) == (split, by)


def test_a_mistake_in_a_config_of_a_stage_and_of_a_tool_reads_alike(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[rate]\nnonsense = 1\n[evaluate]\nnonsense = 1\n")
    for command in ("rate", "evaluate"):
        with pytest.raises(ConfigError, match=r"c\.toml.*nonsense"):
            cli._run([command, "@", str(file)])
