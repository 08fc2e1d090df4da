"""The settings class of every stage, by the stage's name: what a config file may have tables for.

`flow` names the classes; they are imported when they are first asked for.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelmill.flow import STAGES

if TYPE_CHECKING:
    from kernelmill.settings.fields import Settings


def referenced(reference: str) -> Any:
    """What `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def stage_classes() -> dict[str, type[Settings]]:
    return {stage.name: referenced(stage.settings) for stage in STAGES}
