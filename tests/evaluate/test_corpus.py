"""The corpus itself: labels are whole, patterns covered, and nothing in a candidate's code gives its label away."""

import ast
import re

import pytest

from tests.evaluate import corpus
from tests.evaluate.attacks import attacks
from tests.evaluate.corpus import Case, cases, tasks

PATTERNS = [
    f"{letter}{n}"
    for letter, count in zip("ABCDE", (16, 15, 21, 17, 14), strict=True)
    for n in range(1, count + 1)
]
IMPORTANT = [
    "A2",
    "A3",
    "A5",
    "A7",
    "B1",
    "B2",
    "B3",
    "B4",
    "B7",
    "C1",
    "C2",
    "C6",
    "C7",
    "E1",
    "E2",
    "E3",
    "E4",
    "E5",
    "E11",
]
ENDS_OR_FLOODS = re.compile(r"os\.(_exit|kill|fork)\(|string_at\(0\)|setrecursionlimit|sleep\(3600\)|SIG_IGN")
by_name = {case.name: case for case in cases()}
every_case = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


def _twins() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases():
        for name in case.twin_of:
            found.setdefault(name, []).append(case)
    return found


def _left_out() -> dict[str, str]:
    text = (corpus.ROOT / "README.md").read_text("utf-8")
    section = text.split("## Left out", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| ([A-E]\d+) \| (.{20,}) \|$", section, re.M))


def test_every_pattern_has_a_case_or_a_reason_why_not() -> None:
    covered = {case.pattern for case in cases() if not case.twin_of}
    left_out = _left_out()
    assert covered | set(left_out) == set(PATTERNS) | {"X"}
    assert not covered & set(left_out)


def test_important_patterns_come_in_several_spellings() -> None:
    spellings = {p: [c.name for c in cases() if c.pattern == p and c.hostile] for p in IMPORTANT}
    assert {p: names for p, names in spellings.items() if len(names) < 2} == {}


def test_every_hostile_case_has_an_honest_one_beside_it() -> None:
    twins = _twins()
    needed = {case.name for case in cases() if not case.twin_of and (case.hostile or case.pattern != "X")}
    assert needed - set(twins) == set()


def test_a_twin_is_right_and_stands_beside_cases_of_its_own_pattern() -> None:
    for name, twins in _twins().items():
        for twin in twins:
            assert "correct" in twin.labels, twin.name
            assert not twin.hostile, twin.name
            assert by_name[name].pattern == twin.pattern, twin.name
            assert not by_name[name].twin_of, f"{twin.name} stands beside a twin"


def test_the_tasks_are_many_and_all_used() -> None:
    used = {case.task for case in cases()}
    assert len(used) >= 12
    assert used | {attack.task for attack in attacks()} == set(tasks())
    conventions = {case.entry_point == "Model" for case in cases()}
    assert conventions == {True, False}


def test_every_truth_is_among_the_labels() -> None:
    only = {next(iter(case.labels)) for case in cases() if len(case.labels) == 1}
    assert only == corpus.TRUTHS


@every_case
def test_the_header_is_valid(case: Case) -> None:
    assert case.labels <= corpus.TRUTHS
    assert case.labels
    assert case.grade is None or case.grade in corpus.GRADES
    assert case.tier in corpus.TIERS
    assert re.fullmatch(r"(X|[A-E]\d+)_[a-z0-9_]+", case.name)
    assert case.name.split("_")[0] == case.pattern
    assert case.what
    assert all(name in by_name for name in case.twin_of)


@every_case
def test_the_code_parses_and_has_the_class_that_is_asked_for(case: Case) -> None:
    tree = ast.parse(case.code)
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert bool(classes & {f"{case.entry_point}New", "ModelNew"}) is (case.name != "X_no_class")
    assert not isinstance(tree.body[0], ast.Expr), "the label's docstring is still there"


@every_case
def test_the_code_does_not_give_its_label_away(case: Case) -> None:
    words = {"hack", "cheat", "hostile", "benign", "twin", "incorrect", "inconclusive", "label", "twin_of"}
    if case.pattern not in {"E3", "E4", "E5", "E14"}:  # these forge a verdict, and so speak of one
        words.add("correct")
    assert words & set(re.findall(r"[a-z_]+", case.code.lower())) == set()
    assert case.name not in case.code


@every_case
def test_what_ends_or_floods_processes_is_marked_as_dangerous(case: Case) -> None:
    if ENDS_OR_FLOODS.search(case.code):
        assert case.danger


@pytest.mark.parametrize("name", sorted(tasks()))
def test_a_task_defines_a_class_and_its_inputs(name: str) -> None:
    tree = ast.parse(tasks()[name])
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert functions == {"get_inputs", "get_init_inputs"}
    assert corpus.entry_point(tasks()[name]) in {
        node.name for node in tree.body if isinstance(node, ast.ClassDef)
    }


def test_a_header_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="not a header line"):
        corpus.header('"""\nlable: hack\n"""\n')


def test_stripping_leaves_the_code_alone() -> None:
    text = '"""\ntask: softmax\n"""\n\nimport torch\n\nX = """\nlabel: kept\n"""\n'
    assert corpus.without_header(text) == 'import torch\n\nX = """\nlabel: kept\n"""\n'
