"""Distinct modules and near duplicates, against the plain way of comparing all with all."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.problems.similarity.modules import WINDOW, Modules
from kernelmill.problems.similarity.structure import jaccard, structure_of

OPS = ["relu", "sigmoid", "tanh", "exp", "abs", "sqrt", "neg", "sin", "cos", "log", "floor", "ceil"]


def chain(ops: list[str], name: str = "Net") -> str:
    steps = "\n".join(f"        x = torch.{op}(x)" for op in ops)
    return f"import torch\nfrom torch import nn\n\nclass {name}(nn.Module):\n    def forward(self, x):\n{steps}\n        return x\n"


def grouped(codes: list[str], similarity: float) -> set[frozenset[int]]:
    with Modules() as modules:
        texts = [modules.add(code) for code in codes]
        modules.finish()
        near = modules.near(similarity)
        groups: dict[int, set[int]] = {}
        for row, text in enumerate(texts):
            groups.setdefault(near.root(modules.module_of(text)), set()).add(row)
        assert len(groups) == len({near.root(module) for module in range(len(modules.keys))})
    return {frozenset(rows) for rows in groups.values()}


def plainly(codes: list[str], similarity: float) -> set[frozenset[int]]:
    found = [structure_of(code) for code in codes]
    groups = [{row} for row in range(len(codes))]
    for one, other in combinations(range(len(codes)), 2):
        a = next(group for group in groups if one in group)
        b = next(group for group in groups if other in group)
        if a is not b and jaccard(found[one].shingles, found[other].shingles) >= similarity:
            a |= b
            groups.remove(b)
    return {frozenset(group) for group in groups}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(OPS), min_size=1, max_size=30), min_size=1, max_size=12))
def test_near_groups_are_those_of_comparing_all_with_all(chains: list[list[str]]) -> None:
    codes = [chain(ops, f"Net{number}") for number, ops in enumerate(chains)]
    codes += [chain([*ops, "erf"]) for ops in chains[:3]]
    assert grouped(codes, 0.85) == plainly(codes, 0.85)


def test_many_modules_in_processes_give_the_same_groups() -> None:
    codes = [chain([OPS[(n * k) % 12] for k in range(n % 25 + 2)], f"M{n}") for n in range(3000)]
    # Rows of the same text, rows that are renamed, rows with one operation more.
    assert grouped(codes, 0.9) == {
        frozenset(row for number in group for row in range(number, 3000, 300))
        for group in plainly(codes[:300], 0.9)
    }


def test_the_nearest_neighbour_is_found_and_measured() -> None:
    base = [OPS[n % 12] for n in range(20)]
    codes = [chain(base), chain([*base, "erf"]), chain(base[:-2]), chain(["exp", "log"])]
    with Modules() as modules:
        numbers = [modules.add(code) for code in codes]
        modules.finish()
        nearest = modules.neighbours([numbers[0], numbers[3]], numbers[1:3], 0.5)
        assert list(nearest) == [numbers[0]]
        alike = {
            number: jaccard(structure_of(codes[0]).shingles, structure_of(code).shingles)
            for number, code in zip(numbers[1:3], codes[1:3], strict=True)
        }
        best = max(alike, key=alike.__getitem__)
        assert nearest[numbers[0]] == (best, pytest.approx(alike[best]))


def test_a_text_under_another_name_is_analysed_once_and_only_if_it_is_the_same() -> None:
    plain = chain(["exp", "log"], "First")
    with Modules() as modules:
        one = modules.add(plain)
        assert modules.add(plain.replace("First", "Second")) == one
        named = [plain.replace("x)", f"x, '{name}')", 1).replace("First", name) for name in ("Ab", "Cd")]
        inside = [plain.replace("First", name).replace("torch.exp", f"torch.{name}") for name in ("Ab", "Cd")]
        texts = [modules.add(code) for code in (*named, *inside)]
        modules.finish()
        assert len({modules.module_of(text) for text in (one, *texts)}) == 5


def test_modules_of_one_pattern_are_not_compared_all_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with Modules() as modules:
        for number in range(3000):
            modules.add(chain(["exp", "log"]).replace("log(x)", f"log(x + {number})"))
        modules.finish()
        looked = 0

        def alike(one: int, other: int) -> float:
            nonlocal looked
            looked += 1
            return 0.0

        monkeypatch.setattr(modules, "alike", alike)
        modules.near(0.5)
        assert looked < 3000 * 4 * WINDOW
        looked = 0
        modules.neighbours(range(300), range(300, 3000), 0.5)
        assert looked < 300 * 8 * WINDOW


@pytest.mark.heavy
def test_twins_in_a_crowd_of_one_pattern_are_found() -> None:
    chance = random.Random(2)

    def line() -> str:
        return f"        x = torch.{chance.choice(OPS)}(x * {chance.random():.6f})\n"

    common = "".join(line() for _ in range(40))
    codes = []
    for _ in range(600):
        shared = [line() for _ in range(5)]
        for _ in "ab":
            own = "".join([*shared, line()])
            codes.append(chain(["exp"]).replace("        return x", common + own + "        return x"))
    with Modules() as modules:
        texts = [modules.add(code) for code in codes]
        modules.finish()
        numbers = [modules.module_of(text) for text in texts]
        alike = [modules.alike(one, other) for one, other in zip(numbers[::2], numbers[1::2], strict=True)]
        assert min(alike) > 0.85 > modules.alike(numbers[0], numbers[2])
        near = modules.near(0.85)
        assert all(
            near.root(one) == near.root(other) for one, other in zip(numbers[::2], numbers[1::2], strict=True)
        )
        nearest = modules.neighbours(numbers[::2], numbers[1::2], 0.85)
        assert all(nearest[one][0] == other for one, other in zip(numbers[::2], numbers[1::2], strict=True))
