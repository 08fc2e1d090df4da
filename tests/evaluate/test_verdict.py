"""The record keeps what it was given, reads what a later 1.x wrote, and says what is wrong with anything else."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.score.rewards import compute
from kernelmill.evaluate.verdict import Check, Flag, Grade, Perf, Verdict, value_of
from tests.conftest import ROOT
from tests.evaluate.verdicts import STATUSES, timed, untimed, verdicts

unhurried = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

DOC = ROOT / "docs" / "verdict.md"


@unhurried
@given(verdicts())
def test_a_record_that_is_read_again_is_the_same(verdict: Verdict) -> None:
    assert Verdict.from_dict(verdict.to_dict()) == verdict
    assert Verdict.from_dict(json.loads(verdict.to_json())) == verdict


@unhurried
@given(verdicts())
def test_a_record_is_one_line_of_utf_8(verdict: Verdict) -> None:
    line = verdict.to_json()
    assert "\n" not in line
    assert "\r" not in line
    line.encode("utf-8")


@unhurried
@given(verdicts(), st.dictionaries(st.sampled_from(["later", "newer_still"]), st.integers(), min_size=1))
def test_fields_of_a_later_1_x_are_left_out_wherever_they_stand(
    verdict: Verdict, more: dict[str, int]
) -> None:
    row = verdict.to_dict() | more
    row["schema"] = "1.7"
    for part in (row["grade"], row["perf"], *row["checks"], *row["flags"]):
        if part is not None:
            part.update(more)
    assert Verdict.from_dict(row) == dataclasses.replace(verdict, schema="1.7")


@pytest.mark.parametrize("schema", ["2.0", "0.9", "", "11.0", None, "verdict"])
def test_another_major_schema_is_refused(schema: str | None) -> None:
    row = untimed().to_dict()
    row["schema"] = schema
    with pytest.raises(ValueError, match=r"this reads 1\.x"):
        Verdict.from_dict(row)


@pytest.mark.parametrize("status", STATUSES)
def test_the_truth_follows_from_the_status_alone(status: Any) -> None:
    verdict = Verdict(id="x", status=status, tier="static")
    assert verdict.verdict == value_of(status)
    verdict.set_status("HACK")
    assert (verdict.status, verdict.verdict) == ("HACK", "hack")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "GREAT"}, "status is 'GREAT': expected one of PASSED, PARSE_ERROR"),
        ({"status": None}, "status is"),
        ({"tier": "moon"}, "tier is 'moon': expected one of static"),
        ({"verdict": "incorrect"}, "verdict 'incorrect' contradicts status 'PASSED'"),
        ({"id": 7}, "id is '7': expected str"),
        ({"checks": {}}, "checks is"),
        ({"checks": [{"result": "pass"}]}, r"no checks\[0\]\.name"),
        ({"checks": [{"name": "seed_0", "result": "perhaps"}]}, r"checks\[0\]\.result is 'perhaps'"),
        ({"flags": [{"code": "A1.x", "severity": "hard", "evidence": []}]}, r"flags\[0\]\.evidence"),
        ({"grade": None}, "grade is 'None': expected Grade"),
        ({"grade": {"coverage": "all"}}, "grade.coverage is 'all': expected float"),
        ({"grade": {"robust": 1}}, "grade.robust is '1': expected bool"),
        ({"perf": {"device": "x"}}, r"no perf\.regime"),
        ({"perf": timed().to_dict()["perf"] | {"speedup": "2"}}, "perf.speedup is '2': expected float"),
        ({"perf": timed().to_dict()["perf"] | {"speedup": math.nan}}, "perf.speedup is nan"),
        ({"perf": timed().to_dict()["perf"] | {"speedup": True}}, "perf.speedup is 'True': expected float"),
        ({"kb_compat": {"correct_1e-2": 1}}, "kb_compat.correct_1e-2 is '1': expected bool"),
    ],
)
def test_a_record_that_is_wrong_is_refused_by_the_name_of_the_field(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Verdict.from_dict(untimed().to_dict() | change)


@pytest.mark.parametrize("missing", ["id", "status", "tier"])
def test_a_record_without_what_it_needs_is_refused(missing: str) -> None:
    row = untimed().to_dict()
    del row[missing]
    with pytest.raises(ValueError, match=f"no {missing}"):
        Verdict.from_dict(row)


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError, match="not list"):
        Verdict.from_dict([])  # type: ignore[arg-type]


def test_an_error_without_bounds_can_be_written_and_shows_as_null() -> None:
    check = Check("seed_0", "fail", relL2_eps=math.inf, elem_eps=math.nan, bound=[math.inf, 2.0])
    check.worst = {"index": [0], "expected": 1.0, "got": -math.inf}
    flag = Flag("C5.partial", "info", {"shares": [math.nan, 0.5]})
    row = json.loads(Verdict("x", "NONFINITE", "interpreter", checks=[check], flags=[flag]).to_json())
    assert row["checks"] == [
        {
            "name": "seed_0", "result": "fail", "detail": "", "relL2_eps": None, "elem_eps": None,
            "worst": {"index": [0], "expected": 1.0, "got": None},
        }
    ]  # fmt: skip
    assert row["flags"][0]["evidence"] == {"shares": [None, 0.5]}
    again = Verdict.from_dict(row).checks[0]
    assert (again.relL2_eps, again.elem_eps, again.bound) == (None, None, None)


def test_a_time_that_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        timed(math.nan).to_json()


def test_halves_of_letters_in_an_error_do_not_stop_the_file_from_being_written() -> None:
    verdict = Verdict(
        "x",
        "RUNTIME_ERROR",
        "interpreter",
        error="\ud800 and \udcff",
        flags=[Flag("E9.x", "hard", {"\udc80": "\udc80"})],
    )
    assert json.loads(verdict.to_json().encode("utf-8"))["error"] == r"\ud800 and \udcff"


def test_the_record_and_its_functions_need_no_torch() -> None:
    code = (
        "import sys, kernelmill.evaluate.verdict, kernelmill.evaluate.score.rewards, kernelmill.evaluate.score.feedback\n"
        "import kernelmill.evaluate.score.summary, kernelmill.evaluate.score.rescore\n"
        "heavy = {'torch', 'triton', 'numpy', 'msgspec', 'pydantic', 'rich', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)


@pytest.mark.parametrize("kind", [Verdict, Check, Flag, Grade, Perf], ids=lambda kind: kind.__name__)
def test_the_page_lists_every_field_with_its_type_in_the_order_of_the_record(kind: Any) -> None:
    section = re.search(
        rf"^### {kind.__name__}\b.*?(?=^##|\Z)", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert section is not None
    listed = re.findall(r"^\| `(\w+)` \| `(.+?)` \| \S", section[0], re.MULTILINE)
    types = [(field.name, str(field.type)) for field in dataclasses.fields(kind)]
    if kind is Verdict:  # the page goes by the order in the file
        order = list(untimed().to_dict())
        types.sort(key=lambda pair: order.index(pair[0]))
    assert [(name, kind.replace(r"\|", "|")) for name, kind in listed] == types


def test_the_page_lists_every_status_with_its_truth() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (\w+) \| \S", DOC.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [(status, value_of(status)) for status in STATUSES]


def test_the_pages_example_is_a_verdict_and_its_rewards_and_feedback_are_what_the_program_says() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    row = json.loads(block)
    verdict = Verdict.from_dict(row)
    rewards = {name: value and round(value, 4) for name, value in compute(verdict).items()}
    assert row["rewards"] == rewards
    assert row["feedback"] == feedback(verdict)
    written = verdict.to_dict()
    assert written == row
    assert list(written) == list(row)


def test_the_pages_code_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", DOC.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    exec(block, {})
    assert json.loads(capsys.readouterr().out)["verdict"] == "incorrect"
