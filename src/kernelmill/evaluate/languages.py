"""Languages: what kernels of a candidate may be written in, and who judges them.

A language says what the static checks know of it, and names the `kernelmill.sandbox` workers that build its
kernels, run them and see them launched. `Options.language` chooses it, for all candidates of an evaluator.
docs/extending.md shows what a second language takes, and what is still written for Triton.

Standard library alone: the workers are imported in their own processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.static.language import TRITON, StaticRules
from kernelmill.settings.registry import Registry


@dataclass(frozen=True)
class Language:
    what: str
    static: StaticRules
    packages: tuple[str, ...]
    """Distributions whose versions a verdict depends on, besides torch, triton and numpy."""
    judge: str
    """Worker of the tier `interpreter`: `judge.judging.handle`, and companions with the language's `Runtime`."""
    compiler: str | None = None
    """Worker that compiles what was launched for other GPUs, as `compile.worker` does; None for no such stage."""
    gpu: str | None = None
    """Worker of the tiers on a GPU, as `gpu.judge`; None if the language is not judged there."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the processes of `judge`."""
    programs: Callable[[bool], list[str]] = lambda host_compiler: []
    """The programs that `compiler` and, with True, `gpu` may execute."""


LANGUAGES = Registry(
    "language",
    "kernelmill.languages",
    Language,
    {
        "triton": Language(
            "Triton",
            TRITON,
            (),
            "kernelmill.evaluate.judge.worker",
            compiling.WORKER,
            "kernelmill.evaluate.gpu.judge",
            {"TRITON_INTERPRET": "1"},
            compiling.programs,
        )
    },
)
