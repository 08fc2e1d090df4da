"""The settings of every stage, by the stage's name: what a config file may have tables for.

Apart from `settings`, because those of `synthesize` stand with it and are made from the common ones. Does not run stages: `flow` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelmill.generate.rollouts.settings import SynthesizeSettings
from kernelmill.settings.fields import (
    DecontaminateSettings,
    LengthsSettings,
    PublishSettings,
    RateSettings,
    Settings,
    SpecsSettings,
    StripSettings,
    UniqueSettings,
)

STAGES: dict[str, type[Settings]] = {
    "synthesize": SynthesizeSettings,
    "rate": RateSettings,
    "specs": SpecsSettings,
    "unique": UniqueSettings,
    "decontaminate": DecontaminateSettings,
    "strip": StripSettings,
    "lengths": LengthsSettings,
    "publish": PublishSettings,
}


def stage_settings(stage: str, given: Mapping[str, Any], file: Path | None) -> Settings:
    """What a stage is told: by flags or by a step of `run`, below them by the environment and the file."""
    if stage == "synthesize":
        # Its file may have the keys of other people's configs.
        from kernelmill.generate.rollouts.synth_file import resolve

        return resolve(given, file)
    from kernelmill.settings.config import load
    from kernelmill.stages.source_choice import resolved

    return resolved(load(stage, STAGES[stage], given, file))
