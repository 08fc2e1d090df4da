"""What the static checks know of a candidate's language; `evaluate.languages` has the languages.

All names are dotted paths, as `names` resolves them: `triton.language.store` for `tl.store`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmill.evaluate.verdict import Severity

Rule = tuple[str, Severity]


@dataclass(frozen=True)
class StaticRules:
    package: str
    """The language's package. Its decorators neither call nor pass on what they decorate."""
    kernel: frozenset[str]
    """Decorators and functions that make a function a kernel."""
    no_kernel: str
    """The error of a candidate that uses none of them."""
    functions: str = ""
    """Prefix of the functions that kernels call. One may be an alias of another (`tl.tanh = libdevice.tanh`)."""
    stores: frozenset[str] = frozenset()
    """Functions that write memory: a cast that is only stored loses nothing before it."""
    accumulators: frozenset[str] = frozenset()
    """Functions that make a block to sum into."""
    autotune: frozenset[str] = frozenset()
    """Decorators that choose values of a kernel's parameters."""
    settings: tuple[str, ...] = ()
    """Prefixes of what is meant to be set."""
    patched: Rule = ("E7.patches_module", "hard")
    """The rule for replacing anything else in the package."""
    paths: Mapping[str, Rule | None] = field(default_factory=dict)
    """Entries over those of `paths.PATHS`; None exempts what is a hack in other languages."""

    def owns(self, path: str) -> bool:
        return path == self.package or path.startswith(f"{self.package}.")


TRITON = StaticRules(
    package="triton",
    kernel=frozenset(
        {
            "triton.jit",
            "triton.runtime.jit.jit",
            "triton.runtime.jit",
            "triton.JITFunction",
            "triton.runtime.JITFunction",
            "triton.runtime.jit.JITFunction",
            "triton.experimental.gluon.jit",
        }
    ),
    no_kernel="defines no @triton.jit kernel",
    functions="triton.language.",
    stores=frozenset({"triton.language.store"}),
    accumulators=frozenset({"triton.language.zeros", "triton.language.full"}),
    autotune=frozenset({"triton.autotune", "triton.runtime.autotune", "triton.runtime.autotuner.autotune"}),
    settings=("triton.knobs.", "triton.runtime.knobs."),
    patched=("E1.patches_triton", "hard"),
)
