"""Splits: by group, from content and seed alone, the same for all sets that are made from one another."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.errors import BadRow
from kernelmill.problems.similarity.structure import jaccard, structure_of
from kernelmill.publish.splits import TRAIN, VALIDATION, plan_split
from kernelmill.store import open_source
from tests.conftest import ROOT, evals_row, write_rows
from tests.problems.test_modules import OPS, chain

Sides = dict[str, str]


def row(number: int, code: str, reward: float = 1.0) -> dict[str, Any]:
    return evals_row(number, reward, info={"module_name": "Net", "python_code": code, "triton_code": "k"})


def sides_of(path: Path, seed: int = 42, share: float = 0.3) -> tuple[Sides, dict[str, Any]]:
    """The side of each module's code. Fails where the same code is on both."""
    source = open_source(str(path))
    split = plan_split(source, "groups", share=share, seed=seed)
    sides: Sides = {}
    for number, line in enumerate(path.read_bytes().splitlines()):
        code = json.loads(line)["info"]["python_code"]
        assert sides.setdefault(code, split.split_of(number)) == split.split_of(number)
    return sides, split.leakage


def sides_of_codes(folder: Path, codes: list[str], **how: Any) -> tuple[Sides, dict[str, Any]]:
    return sides_of(write_rows(folder / "rows.jsonl", [row(n, code) for n, code in enumerate(codes)]), **how)


def alike(one: str, other: str) -> float:
    return jaccard(structure_of(one).shingles, structure_of(other).shingles)


CHAINS = st.lists(st.lists(st.sampled_from(OPS), min_size=1, max_size=25), min_size=1, max_size=10)


def variants(chains: list[list[str]]) -> list[str]:
    """Each chain, renamed, and with one operation more at its end."""
    return [
        code
        for number, ops in enumerate(chains)
        for code in (chain(ops), chain(ops, f"Other{number}"), chain([*ops, "erf"]))
    ]


@settings(max_examples=40, deadline=None)
@given(CHAINS, st.integers(0, 5))
def test_no_two_modules_that_are_nearly_the_same_are_on_both_sides(
    tmp_path_factory: pytest.TempPathFactory, chains: list[list[str]], seed: int
) -> None:
    sides, leakage = sides_of_codes(tmp_path_factory.mktemp("split"), variants(chains), seed=seed)
    for one in (code for code, side in sides.items() if side == VALIDATION):
        assert all(alike(one, other) < 0.85 for other, side in sides.items() if side == TRAIN)
    assert leakage["groups_on_both_sides"] == 0


@settings(max_examples=40, deadline=None)
@given(CHAINS, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_how_often_they_stand_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, chains: list[list[str]], chance: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("split")
    codes = variants(chains)
    shuffled = codes + chance.choices(codes, k=5)
    chance.shuffle(shuffled)
    assert sides_of_codes(folder, codes)[0] == sides_of_codes(folder, shuffled)[0]


@settings(max_examples=60, deadline=None)
@given(CHAINS, CHAINS)
def test_more_rows_move_only_what_they_bring_a_near_duplicate_to(
    tmp_path_factory: pytest.TempPathFactory, chains: list[list[str]], more: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("split")
    before, _ = sides_of_codes(folder, variants(chains))
    after, _ = sides_of_codes(folder, variants(chains) + variants(more))
    for code in (code for code in before if after[code] != before[code]):
        linked, todo = {code}, [code]
        while todo:
            one = todo.pop()
            found = {other for other in after if other not in linked and alike(one, other) >= 0.85}
            linked |= found
            todo += found
        assert {structure_of(other).key for other in linked} - {structure_of(other).key for other in before}


def varied(chance: random.Random, length: int = 12) -> str:
    """A module that is like no other one."""
    steps = "\n".join(
        f"        x = torch.{chance.choice(OPS)}(x * {chance.random():.3f}) + {chance.randrange(1000)}"
        for _ in range(length)
    )
    return chain(["exp"]).replace("        x = torch.exp(x)", steps)


def nearly(code: str) -> str:
    return code.replace("return x", "return torch.erf(x)")


def test_unrelated_rows_keep_their_sides_when_a_run_grows(tmp_path: Path) -> None:
    chance = random.Random(1)
    codes = [varied(chance) for n in range(400)]
    small, _ = sides_of_codes(tmp_path, codes[:200], share=0.1)
    large, leakage = sides_of_codes(tmp_path, codes, share=0.1)
    assert {code: large[code] for code in small} == small
    assert 0.05 < leakage["validation_rows"] / 400 < 0.15


def test_another_seed_is_another_split(tmp_path: Path) -> None:
    chance = random.Random(1)
    codes = [varied(chance) for _ in range(50)]
    assert sides_of_codes(tmp_path, codes, seed=1)[0] != sides_of_codes(tmp_path, codes, seed=2)[0]


def test_filtered_unique_and_no_reasoning_sets_agree(tmp_path: Path, mill: Callable[..., Any]) -> None:
    chance = random.Random(3)
    rows = []
    for number in range(120):
        code = varied(chance)
        # Of each pair of near duplicates, one or the other is the better one and stays in the unique set.
        for variant in (code, nearly(code)):
            answer = {"role": "assistant", "content": "<think>hm</think><answer>k</answer>"}
            rows.append(row(len(rows), variant, chance.random()) | {"completion": [answer], "n": number})
    write_rows(tmp_path / "filtered.jsonl", rows)
    assert mill("unique", "filtered.jsonl", "-o", "unique.jsonl").returncode == 0
    assert mill("strip", "unique.jsonl", "-o", "plain.jsonl").returncode == 0
    filtered, _ = sides_of(tmp_path / "filtered.jsonl")
    for made in ("unique.jsonl", "plain.jsonl"):
        sides, leakage = sides_of(tmp_path / made)
        assert 100 < len(sides) < len(filtered)
        assert sides == {code: filtered[code] for code in sides}
        assert leakage["modules"] == len(sides)
    # Without the manifest there is nothing to follow, and by themselves they would not agree.
    (tmp_path / "unique.manifest.json").unlink()
    alone, _ = sides_of(tmp_path / "unique.jsonl")
    assert alone != {code: filtered[code] for code in alone}


def test_the_report_names_the_nearest_train_neighbour_of_a_validation_module(tmp_path: Path) -> None:
    chance = random.Random(5)
    codes = []
    for _ in range(60):
        code = varied(chance, 6)
        codes += [code, nearly(code).replace("erf(x)", "erf(x + 3) * 7")]
    sides, leakage = sides_of_codes(tmp_path, codes)
    validation = [code for code, side in sides.items() if side == VALIDATION]
    train = [code for code, side in sides.items() if side == TRAIN]
    expected = {}
    for one in validation:
        best = max(alike(one, other) for other in train)
        if best >= 0.7:
            expected[one] = best
    assert len(expected) > 3
    found = {
        codes[int(near["validation"].split(":")[1].split(" ")[0]) - 1]: near for near in leakage["nearest"]
    }
    # MinHash may miss a few that are barely close.
    assert set(found) <= set(expected)
    assert len(found) >= 0.9 * len(expected)
    for code, near in found.items():
        other = codes[int(near["train"].split(":")[1].split(" ")[0]) - 1]
        assert sides[other] == TRAIN
        assert near["alike"] == pytest.approx(alike(code, other), abs=1e-4)
        assert near["train"].endswith(" (Net)")
    assert leakage["validation_modules_close_to_train"] == len(found)


def test_the_old_way_takes_the_rows_that_datasets_took(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    for count in (1, 10, 37, 118):
        path = write_rows(tmp_path / "rows.jsonl", [row(n, chain(["exp"])) for n in range(count)])
        split = plan_split(open_source(str(path)), "rows")
        if count == 1:
            assert split.split_of(0) == VALIDATION
            continue
        old = datasets.Dataset.from_dict({"n": list(range(count))}).train_test_split(test_size=0.1, seed=42)
        ours = {number for number in range(count) if split.split_of(number) == VALIDATION}
        assert ours == set(old["test"]["n"])


def test_a_row_without_a_module_is_told(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "rows.jsonl", [row(0, "x = 1"), {"prompt": "hello"}])
    with pytest.raises(BadRow, match=r"rows.jsonl:2: no module"):
        plan_split(open_source(str(path)), "groups")


def test_the_bundled_samples_have_both_sides() -> None:
    split = plan_split(open_source(str(ROOT / "data/samples/evals.jsonl")), "groups")
    sides = [split.split_of(number) for number in range(60)]
    assert 0 < sides.count(VALIDATION) < 20
