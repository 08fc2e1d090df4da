from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.errors import BadRow, ConfigError
from kernelmill.settings.commands import run_tool
from tests.conftest import evals_row, write_rows


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-n", "-1"], "argument -n/--limit: -1: expected a whole number from 0 on"),
        (["--from", "-1"], "argument --from: -1: expected a whole number from 0 on"),
        (["--lines", "-1"], "argument --lines: -1: expected a whole number from 0 on"),
        (["-n", "x"], "argument -n/--limit: x: expected a whole number from 0 on"),
        (["-n", "9" * 5000], "expected a whole number"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
        (["--columns", "reward.x"], r"no column reward\.x"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, arguments: list[str], problem: str) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [evals_row(0)])
    with pytest.raises(ConfigError, match=problem) as caught:
        run_tool("show", [str(rows), *arguments])
    assert "\n" not in str(caught.value)


def test_no_source_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"required: SOURCE \(see kernelmill show --help"):
        run_tool("show", [])


def test_more_rows_than_any_source_has_are_all_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"n": "first"}, {"n": "second"}])
    assert run_tool("show", [str(rows), "-n", str(10**30)]) == 0
    assert "second" in capsys.readouterr().out
    assert run_tool("show", [str(rows), "-n", str(10**30), "--from", str(10**30)]) == 0
    assert "the source has fewer" in capsys.readouterr().out
    assert run_tool("show", [str(rows), "-n", "0"]) == 0
    assert "first" not in capsys.readouterr().out


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(BadRow, match=r"rows\.jsonl:2: not a JSON object"):
        run_tool("show", [str(tmp_path / "rows.jsonl")])
