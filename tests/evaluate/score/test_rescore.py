"""Rescoring changes rewards and nothing else, refuses what it cannot read, and leaves no half of a file."""

from __future__ import annotations

import json
import os
import tempfile
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.errors import BadRow, ConfigError, OutputError, SourceError
from kernelmill.evaluate.score.rescore import rescore
from kernelmill.evaluate.score.rewards import compute
from kernelmill.evaluate.verdict import Verdict
from kernelmill.settings.commands import run_tool
from tests.conftest import read_rows
from tests.evaluate.verdicts import timed, untimed, verdicts

main = partial(run_tool, "rescore")
unhurried = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def write(path: Path, *found: Verdict) -> Path:
    path.write_text("".join(verdict.to_json() + "\n" for verdict in found), encoding="utf-8")
    return path


def test_rewards_are_computed_again_and_nothing_else_changes(capsys: pytest.CaptureFixture[str]) -> None:
    hack = Verdict("h", "HACK", "interpreter", rewards={"default": 9.0, "mine": 0.25})
    write(Path("in.jsonl"), timed(2.0, error="Ünïcode \u2028 \x00"), untimed(), hack)
    assert main(["in.jsonl", "-o", "out.jsonl"]) == 0
    assert capsys.readouterr().err == "3 rows rescored into out.jsonl\n"
    before = [json.loads(line) for line in Path("in.jsonl").read_bytes().splitlines()]
    after = [json.loads(line) for line in Path("out.jsonl").read_bytes().splitlines()]
    for old, new in zip(before, after, strict=True):
        assert list(old) == list(new)
        assert {**old, "rewards": None} == {**new, "rewards": None}
        assert new["rewards"].items() >= compute(Verdict.from_dict(old)).items()
    assert after[2]["rewards"]["default"] == -1.0
    assert after[2]["rewards"]["mine"] == 0.25


@unhurried
@given(st.lists(verdicts(), max_size=4))
def test_any_file_of_verdicts_comes_out_with_the_same_values_and_the_second_time_with_the_same_bytes(
    found: list[Verdict],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write(folder / "in.jsonl", *found)
        assert rescore(source, folder / "out.jsonl") == len(found)
        rescore(folder / "out.jsonl", folder / "again.jsonl")
        assert (folder / "again.jsonl").read_bytes() == (folder / "out.jsonl").read_bytes()
        for old, new in zip(found, (folder / "out.jsonl").read_bytes().split(b"\n"), strict=False):
            row = json.loads(new)
            assert Verdict.from_dict({**row, "rewards": old.rewards}) == old


@pytest.mark.parametrize(
    ("name", "expected"), [("speedup", [2.0, None, 0.0]), ("fast_1.2", [1.0, None, 0.0])]
)
def test_one_reward_becomes_a_column_and_masked_is_null(name: str, expected: list[float | None]) -> None:
    write(Path("in.jsonl"), timed(2.0), untimed(), Verdict("w", "TIMEOUT", "interpreter"))
    assert main(["in.jsonl", "--output", "out.jsonl", "--reward", name]) == 0
    rows = read_rows(Path("out.jsonl"))
    assert [row["reward"] for row in rows] == expected
    assert list(rows[0])[-1] == "reward"


def test_fields_that_this_version_does_not_know_stay() -> None:
    row = untimed().to_dict() | {"schema": "1.9", "later": {"b": 1, "a": [1.5, 10**30, "\ud800"]}}
    row["grade"]["elegance"] = 3
    Path("in.jsonl").write_text(json.dumps(row), encoding="utf-8")  # also: no line break at the end
    assert main(["in.jsonl", "-o", "out.jsonl"]) == 0
    (after,) = [json.loads(line) for line in Path("out.jsonl").read_bytes().splitlines()]
    assert after["later"] == row["later"]
    assert list(after["later"]) == ["b", "a"]
    assert after["grade"]["elegance"] == 3
    assert after["schema"] == "1.9"


GOOD = untimed().to_json()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (GOOD[:-20], r"in\.jsonl:2: not JSON .*the last line is torn"),
        (GOOD[:-20] + "\n", r"in\.jsonl:2: not JSON \([^;]*\)$"),
        ("[]\n", "in.jsonl:2: expected a verdict, found list"),
        ("{}\n", r"in\.jsonl:2: a verdict of schema None; this reads 1\.x"),
        (GOOD.replace('"1.1"', '"2.0"') + "\n", r"in\.jsonl:2: a verdict of schema '2\.0'"),
        (GOOD.replace('"PASSED"', '"SUPERB"') + "\n", "in.jsonl:2: status is 'SUPERB'"),
        (
            GOOD.replace('"PASSED"', '"HACK"') + "\n",
            "in.jsonl:2: verdict 'correct' contradicts status 'HACK'",
        ),
        (GOOD.replace('"perf": null', '"perf": {"speedup": NaN}') + "\n", "NaN is no JSON number"),
        (GOOD.replace('"perf": null', '"perf": {"speedup": 1e999}') + "\n", "too large a number"),
        (GOOD.replace('"perf": null', '"perf": null, "perf": null') + "\n", "a key stands twice"),
        ("[" * 100_000 + "\n", "in.jsonl:2: not JSON"),
        ("\udcff\n", "in.jsonl:2: not JSON"),
    ],
)
def test_a_row_that_cannot_be_read_is_named_and_nothing_is_written(line: str, message: str) -> None:
    Path("in.jsonl").write_bytes(f"{GOOD}\n{line}".encode("utf-8", "surrogateescape"))
    Path("out.jsonl").write_text("what was there", encoding="utf-8")
    with pytest.raises(BadRow, match=message) as caught:
        main(["in.jsonl", "-o", "out.jsonl"])
    assert caught.value.exit_code == 1
    assert sorted(os.listdir()) == ["in.jsonl", "out.jsonl"]
    assert Path("out.jsonl").read_text(encoding="utf-8") == "what was there"


def test_the_source_is_never_written_over_by_whatever_name() -> None:
    source = write(Path("in.jsonl"), untimed())
    before = source.read_bytes()
    Path("soft.jsonl").symlink_to(source)
    Path("hard.jsonl").hardlink_to(source)
    for name in ("in.jsonl", "./in.jsonl", str(source.resolve()), "soft.jsonl", "hard.jsonl"):
        with pytest.raises(OutputError, match="the source itself"):
            main(["in.jsonl", "-o", name])
    assert source.read_bytes() == before


def test_wrong_usage_is_said_before_anything_is_read() -> None:
    Path("in.jsonl").write_text("not a verdict\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="did you mean speedup"):
        main(["in.jsonl", "-o", "out.jsonl", "--reward", "speedupp"])
    with pytest.raises(ConfigError, match="-o/--output"):
        main(["in.jsonl"])
    with pytest.raises(SourceError, match=r"nowhere\.jsonl is not a file"):
        main(["nowhere.jsonl", "-o", "out.jsonl"])
    with pytest.raises(OutputError, match="is a folder"):
        main(["in.jsonl", "-o", "."])
    with pytest.raises(OutputError, match="make the folder first"):
        main(["in.jsonl", "-o", "no/where.jsonl"])
    assert os.listdir() == ["in.jsonl"]


def test_empty_lines_are_no_rows_and_an_empty_file_is_none() -> None:
    Path("in.jsonl").write_text(f"\n{GOOD}\n\n  \n{GOOD}", encoding="utf-8")
    assert rescore(Path("in.jsonl"), Path("out.jsonl")) == 2
    Path("empty.jsonl").touch()
    assert rescore(Path("empty.jsonl"), Path("none.jsonl")) == 0
    assert Path("none.jsonl").read_bytes() == b""


def test_the_output_can_be_read_by_whom_the_umask_lets() -> None:
    write(Path("in.jsonl"), untimed())
    main(["in.jsonl", "-o", "out.jsonl"])
    assert Path("out.jsonl").stat().st_mode == Path("in.jsonl").stat().st_mode
