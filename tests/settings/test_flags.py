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
from kernelmill.decompose.command import levels_of
from kernelmill.errors import ConfigError
from kernelmill.flow import COMMANDS
from kernelmill.settings.arguments import Parser
from kernelmill.settings.commands import parse_tool
from kernelmill.stages.call import stage_settings
from tests.conftest import evals_row, write_rows

MEANINGS = {
    "--config": ("FILE", r"TOML file \(same as @ FILE\)"),
    "--split": ("NAME", r"one split of a Hub dataset"),
    "--limit": ("N", r"the first N \w+ only"),
    "--timeout": ("SECONDS", r"seconds one .*may take"),
    "--workers": ("N", r"\w+ at a time \(default: "),
    "--device": ("cpu|cuda|auto", r"where candidates are judged"),
    "--levels": ("1,2", r"levels"),
    "--seed": ("N", r"split|with|shuffle|fixed seed"),
    "--json": (None, r"print JSON"),
    "--tf32": (None, r"allow TF32 in float32 matrix products"),
    "--dry-run": (None, r"^say "),
    "--test-mode": (None, r"^first 5 rows only"),
    "--on-bad-row": ("stop|reject", r"a row that cannot be read"),
    "--entry-point": ("CLASS", r"class"),
    "--level": ("N", r"only models of this level"),
    "--default-level": ("N", r"level of problems that have none"),
}
EXCEPTIONS = {
    (
        "lengths",
        "--json",
    ): "takes a FILE, and always did: `lengths --json FILE` is documented and in people's scripts; the first "
    "name of the flag is --json-path",
    (
        "problems import",
        "--level",
    ): "the old spelling of --default-level, which was documented; the batch script of the old pipeline has "
    "`--level` for the models of a level, as decompose does",
}
"""Where a flag means something else than in the other commands, and why it stays so. Not for new flags."""
SEVERAL = {"--output": {"FILE", "FOLDER"}, "-o": {"FILE", "FOLDER"}, "--from": {"STEP", "ROW"}}
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
    """Every flag by each of its spellings, without the exceptions."""
    caught: list[argparse.ArgumentParser] = []

    def catch(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        caught.append(parser)
        raise _Caught

    monkeypatch.setattr(Parser, "parse_known_args", catch)
    found: dict[str, list[Flag]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    for name in COMMANDS:
        with pytest.raises(_Caught):
            cli._run([name])
        for command, parser in _parsers(name, caught.pop()):
            for action in parser._actions:
                for flag in action.option_strings:
                    if (command, flag) in EXCEPTIONS:
                        seen.add((command, flag))
                    else:
                        found[flag].append(Flag(command, action))
    assert seen == set(EXCEPTIONS), "an exception that is none goes"
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


def test_a_short_flag_stands_for_one_long_one_and_a_flag_has_one_default(
    flags: dict[str, list[Flag]],
) -> None:
    for name, uses in flags.items():
        if not name.startswith("--"):
            assert len({one.action.option_strings[-1] for one in uses}) == 1, name
    assert {one.action.help.partition("(")[2] for one in flags["--workers"] if one.action.help} == {
        "default: number of CPUs)"
    }
    # Those of a stage stand in its settings.
    assert {one.action.default for one in flags["--workers"]} == {None, argparse.SUPPRESS}


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
    (tmp_path / "c.toml").write_text(
        '[problems.import]\nsource = "here"\nworkers = 3\nforce = true\n[problems.list]\nlevels = [1, 2]\n'
    )
    _, given = parse_tool("problems", ["import", "@", str(tmp_path / "c.toml")])
    assert (given.source, given.workers, given.force) == ("here", 3, True)
    assert parse_tool("problems", ["list", "@", str(tmp_path / "c.toml")]) == parse_tool(
        "problems", ["list", "--levels", "1,2"]
    )


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


@pytest.mark.parametrize("command", ["unique", "run", "show", "synthesize", "problems list", "bench-model"])
def test_tables_of_other_commands_are_passed_over_and_unknown_ones_are_an_error_everywhere(
    command: str, tmp_path: Path, mill: Callable[..., Any]
) -> None:
    own = {
        "run": 'steps = [{ stage = "unique", source = "rows.jsonl", output = "u.jsonl" }]',
        "unique": 'source = "rows.jsonl"',
        "show": 'source = "rows.jsonl"',
        "synthesize": 'source = "nowhere.jsonl"\nbase_url = "http://127.0.0.1:9/v1"',
        "problems list": 'folder = "."',
        "bench-model": 'source = "nowhere"\noutput = "o"',
    }
    write_rows(tmp_path / "rows.jsonl", [evals_row(n) for n in range(2)])
    tables = [f"[{name.replace(' ', '.')}]\n{keys}\n" for name, keys in own.items()]
    others = [f"[{name}]\n" for name in (*COMMANDS, "llm", "prices") if name not in (*own, "problems")]
    file = tmp_path / "c.toml"
    file.write_text("".join([*tables, *others]))
    done = mill(*command.split(), "@", file)
    assert "unknown" not in done.stderr
    assert done.returncode == 0 or "nowhere" in done.stderr or command == "problems list", done.stderr
    file.write_text(file.read_text() + "[shwo]\n")
    wrong = mill(*command.split(), "@", file)
    assert wrong.returncode == 2
    assert wrong.stderr == f"kernelmill: {file}: unknown key shwo (did you mean show?)\n"


@pytest.mark.parametrize("command", ["rate", "show", "run"])
def test_the_keys_of_a_synthesize_file_are_not_passed_over_by_commands_that_do_not_read_them(
    command: str, tmp_path: Path, mill: Callable[..., Any]
) -> None:
    (tmp_path / "c.toml").write_text('[model]\nname = "m"\n')
    done = mill(command, "@", "c.toml")
    assert (done.returncode, "c.toml: unknown key model" in done.stderr) == (2, True)


def test_a_word_of_a_tool_that_is_none_is_an_error_for_all_its_words(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    (tmp_path / "c.toml").write_text("[problems.imprt]\nworkers = 2\n")
    done = mill("problems", "list", "@", "c.toml")
    assert done.returncode == 2
    assert "c.toml: unknown key problems.imprt (did you mean import?)" in done.stderr
