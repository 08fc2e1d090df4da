"""Judge Triton kernels that claim to compute a PyTorch module's function.

    verdict = evaluate(reference, candidate)

In: a reference's and a candidate's source. Out: a `Verdict`. `Evaluator` keeps its processes warm for many
pairs. Importing this package imports neither torch nor triton; the names in `__all__` are imported on first
use. They are the public interface. Everything that executes a reference or a candidate runs in confined
processes (`kernelmill.sandbox`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmill.evaluate.evaluator import Evaluator, evaluate
    from kernelmill.evaluate.options import Options, Pair
    from kernelmill.evaluate.verdict import Verdict

__all__ = ["Evaluator", "Options", "Pair", "Verdict", "evaluate"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = {"Verdict": "verdict", "Options": "options", "Pair": "options"}.get(name, "evaluator")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
