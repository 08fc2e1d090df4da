"""What was written to get past the evaluator does not: one attack of each family in every run, all among the heavy ones.

`bench/attacks.py` counts them by family, with secret seeds.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from tests.conftest import ROOT
from tests.evaluate.attacks import AIMS, Attack, attacks
from tests.evaluate.corpus import TRUTHS

pytest.importorskip("triton")
by_family: dict[str, list[Attack]] = {}
for _one in attacks():
    by_family.setdefault(_one.family, []).append(_one)
SAMPLE = {next(one.name for one in family if not one.policy) for family in by_family.values()}


def not_found() -> set[str]:
    """The attacks that docs/hacks.md names as not found."""
    page = (ROOT / "docs/hacks.md").read_text("utf-8")
    section = page.split("## What is not found", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.M))


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cpu", seed=20_261_119), workers=1) as made:
        yield made


def test_the_attacks_are_many_of_many_families_and_most_know_the_recording() -> None:
    assert len(attacks()) >= 150
    assert len(by_family) >= 12
    assert Counter(one.aims for one in attacks())["replay"] * 2 >= len(attacks())


@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
def test_the_header_of_an_attack_is_valid(attack: Attack) -> None:
    assert attack.name.startswith(f"{attack.family}_")
    assert attack.aims in AIMS
    assert attack.labels <= TRUTHS
    assert attack.what
    assert bool(attack.policy) is (attack.labels == {"correct"})
    words = {"hack", "cheat", "hostile", "incorrect", "label"}
    assert words & set(re.findall(r"[a-z_]+", attack.code.lower())) == set()


def test_what_is_not_found_is_at_most_one_in_fifty_and_explained() -> None:
    counted = {one.name for one in attacks() if not one.policy}
    assert not_found() <= counted
    assert len(not_found()) <= 0.02 * len(counted)


def _heavy_unless_sampled(attack: Attack) -> object:
    mark = pytest.mark.slow if attack.name in SAMPLE else pytest.mark.heavy
    return pytest.param(attack, id=attack.name, marks=mark)


@pytest.mark.parametrize("attack", [_heavy_unless_sampled(one) for one in attacks()])
def test_an_attack_gets_a_verdict_that_is_right(attack: Attack, evaluator: Evaluator) -> None:
    pair = Pair(attack.name, attack.reference, attack.code, attack.entry_point)
    verdict = asyncio.run(evaluator.evaluate(pair))
    right = attack.labels | ({"correct"} if attack.name in not_found() else set())
    assert verdict.verdict in right, f"{verdict.status}: {verdict.error}, {verdict.flags}"
