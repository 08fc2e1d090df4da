"""What to evaluate and how: a candidate with its reference, the options, and the versions that matter."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import platform
from dataclasses import dataclass
from typing import Any, Literal

from kernelmill import __version__
from kernelmill.evaluate.compile.targets import DEFAULT, TARGETS
from kernelmill.evaluate.languages import LANGUAGES
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.verdict import (
    Tier,
)


@dataclass(frozen=True)
class Options:
    """How to evaluate. All fields but `devices` are part of a verdict's key."""

    device: Literal["cpu", "cuda", "auto"] = "auto"
    devices: tuple[int, ...] = ()
    """The GPUs to use, by number; empty for all visible ones. Any of them gives the same verdict."""
    tier: Tier | None = None
    """The last tier to run; None to go as far as the device allows."""
    audit: bool = False
    """Run every check and record it, also after the first failure."""
    tf32: bool = False
    """The task allows float32 products to round their operands."""
    timeout: float = 60.0
    """Seconds of own time that one candidate may run in one tier; waiting does not count.

    A candidate that needs more is inconclusive.
    """
    call_timeout: float = 10.0
    """Seconds of these for one call. On a GPU a call gets more if the reference takes long."""
    compile_timeout: float = 60.0
    """Processor seconds for compiling one kernel for one target."""
    memory_mb: int = 4096
    targets: tuple[str, ...] = DEFAULT
    """Names of `compile.targets.TARGETS`. Only a failure to compile for the first one decides the verdict."""
    baselines: tuple[str, ...] = ("compile",)
    """Baselines to time in addition to eager: compile, compile_max."""
    language: str = "triton"
    """A name of `languages.LANGUAGES`: what the candidates' kernels are written in."""
    seed: int | None = None
    """Seed to replay a verdict; None to draw a secret one for each candidate."""

    def key(self) -> dict[str, Any]:
        return {
            "tier": self.tier,
            "device": self.device,
            "audit": self.audit,
            "tf32": self.tf32,
            "timeout": self.timeout,
            "call_timeout": self.call_timeout,
            "compile_timeout": self.compile_timeout,
            "memory_mb": self.memory_mb,
            "targets": list(self.targets),
            "baselines": list(self.baselines),
            "seed": self.seed,
            **{f"target {name}": origin for name in self.targets if (origin := TARGETS.origin(name))},
            **self._language_key(),
        }

    def _language_key(self) -> dict[str, Any]:
        """Empty for Triton, whose version is in `environment`."""
        if self.language == Options.language:
            return {}
        packages = LANGUAGES.find(self.language).packages
        return {
            "language": [self.language, LANGUAGES.origin(self.language)],
            "packages": {name: version(name) for name in packages},
        }


@dataclass(frozen=True)
class Pair:
    """A candidate to judge. `candidate` is plain code or a model's whole completion."""

    id: str
    reference: str
    candidate: str
    entry_point: str | None = None

    def key(self, options: Options) -> str:
        """Hash of the content that decides the verdict: sources, options and versions."""
        parts = [self.reference, self.candidate, self.entry_point, options.key(), environment()]
        if offline_models.imports_transformers(self.reference):
            parts.append(version("transformers"))  # its models depend on the version
        text = json.dumps(parts, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"


@functools.cache
def environment() -> dict[str, Any]:
    """The versions that a verdict depends on."""

    found = {name: version(name) for name in ("torch", "triton", "numpy")}
    return found | {"python": platform.python_version(), "evaluator": __version__}


def version(name: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
