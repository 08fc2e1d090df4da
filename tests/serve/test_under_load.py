"""The service with more clients than places: the figures that are kept, and a short look of our own."""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    import reward_server  # type: ignore[import-not-found]

    return reward_server


@pytest.fixture
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BENCH / "results/reward_server.json").read_text(encoding="utf-8"))
    return found


def test_two_hundred_clients_lost_nothing_and_health_stayed_quick(bench: Any, kept: dict[str, Any]) -> None:
    assert bench.unmet(kept) == []
    for name in ("undisturbed", "restarted"):
        assert sum(kept[name]["by_status"].values()) == kept[name]["requests"] > kept["clients"]
        assert sum(kept[name]["health"]["by_status"].values()) == kept[name]["health"]["asked"] > 1000
    # While it was down nobody listened, and while it started it said so.
    assert {"0", "200", "503"} == set(kept["restarted"]["health"]["by_status"])


@pytest.mark.parametrize(
    ("place", "worse"),
    [
        (("lost",), ["no reward"]),
        (("answered",), 1),
        (("hostile",), 0),
        (("http",), {"200": 9}),
        (("http",), {"200": 9, "429": 1, "500": 1}),
        (("health", "p99_ms"), 100.0),
        (("memory_mb", "after"), 5000.0),
        (("right_that_are_not_correct",), ["TIMEOUT"]),
        (("wrong_or_hostile_called_correct",), ["attack:x"]),
        (("orphans",), ["1 python"]),
        (("exit_status",), 1),
    ],
)
@pytest.mark.parametrize("name", ["undisturbed", "restarted"])
def test_a_bound_that_is_missed_is_named(
    bench: Any, kept: dict[str, Any], name: str, place: tuple[str, ...], worse: object
) -> None:
    found = copy.deepcopy(kept)
    at = found[name]
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = worse
    assert [line.partition(":")[0] for line in bench.unmet(found)] == [name]


def test_a_short_run_and_one_without_a_restart_are_not_enough(bench: Any, kept: dict[str, Any]) -> None:
    assert len(bench.unmet({**kept, "seconds": 59})) == 1
    assert len(bench.unmet({**kept, "restarted": {**kept["restarted"], "restarts": 0}})) == 1


@pytest.mark.heavy
def test_clients_of_a_service_that_is_full_killed_and_started_again_get_all_their_verdicts(
    bench: Any, tmp_path: Path
) -> None:
    found = bench.run(tmp_path, clients=24, seconds=10.0, workers=2, kill=True, queue=8)
    # How quick `/health` is depends on who else uses this machine; the benchmark has the bound.
    assert bench.unmet_once(found, p99_ms=math.inf) == []
    assert found["restarts"] == 1
    assert found["requests"] > 24
