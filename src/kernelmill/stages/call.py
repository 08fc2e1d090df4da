"""Call a stage by name: load its settings from flags and a config file, and run it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelmill.base.terminal import tell
from kernelmill.flow import COMMANDS, Command, StageResult
from kernelmill.settings.base import Settings
from kernelmill.settings.config import load
from kernelmill.settings.registry import referenced, stage_classes
from kernelmill.stages.source_choice import source_lines, with_resolved_source


def stage_settings(stage: str, given: Mapping[str, Any], file: Path | None) -> Settings:
    """Load a stage's settings. `given` (flags, or a step of `run`) overrides the environment and the file."""
    command = COMMANDS[stage]
    if command.load:
        settings: Settings = referenced(command.load)(given, file)
        return settings
    return with_resolved_source(load(stage, stage_classes()[stage], given, file))


def call_stage(command: Command, settings: Settings) -> StageResult:
    """Print which source a stage reads, and run it, whether its function is a coroutine or not."""
    for line in source_lines(settings):
        tell(line)
    made = referenced(command.run)(settings)
    if not isinstance(made, StageResult):
        import asyncio

        made = asyncio.run(made)
    assert isinstance(made, StageResult)
    return made
