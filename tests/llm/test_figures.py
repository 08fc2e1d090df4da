"""What bench/llm_pushback.py found on an idle machine, beside other clients in one run: kept in bench/results."""

from __future__ import annotations

import json

from tests.conftest import ROOT


def test_an_endpoint_that_pushes_back_was_used_within_twice_its_limits_and_before_other_clients() -> None:
    found = json.loads((ROOT / "bench/results/llm_pushback.json").read_text(encoding="utf-8"))
    assert found["not_met"] == []
    assert {"curator", "data-designer"} == set(found["peers"])
    for name, sides in found["endpoints"].items():
        ours = sides["kernelmill"]
        assert ours["answered"] == found["calls"], name
        assert ours["times_allowed"] <= 2, name
        assert ours["seconds"] < min(sides[peer]["seconds"] for peer in found["peers"]), name
