"""The judge's own clock against the candidate's events. No torch, no numpy: the orchestrator asks, too."""

from __future__ import annotations

SLACK, SLACK_US = 1.5, 60.0
"""How far the judge's clock may be from the candidate's events, which do not hold all of the wait for a launch."""


def clocks_agree(wall: dict[str, float]) -> bool:
    """Whether the candidate's events hold about what the judge waited for a call."""
    return wall["candidate"] <= SLACK * wall["events"] + SLACK_US
