"""Judge Triton kernels that claim to compute a PyTorch module's function.

    verdict = evaluate(reference, candidate)

In: a reference's and a candidate's source. Out: a `Verdict`. `Evaluator` keeps its processes warm for many
pairs. Importing this package imports neither torch nor triton; the names in `__all__` are imported on first
use. They are the public interface. Everything that executes a reference or a candidate runs in confined
processes (`kernelmill.sandbox`).

In the process that writes verdicts, without torch:

    command, batch, pairs             `kernelmill evaluate`: one pair, or a file of pairs
    progress, verdict_journal         progress and stored verdicts of a batch
    evaluator, evaluation             all tiers for many candidates, and one candidate on its way through them
    options, verdict                  what comes in and what goes out
    servers, gpu.gpu_judges           the warm servers of the tiers
    static                            checks of the source text
    flags, interpreter_gaps           the codes of all hack checks; what the interpreter cannot run
    languages, compile.targets        registries: languages of kernels, GPUs to compile for
    score                             rewards, feedback and summaries of verdicts
    admit.command                     `kernelmill admit`: tasks that a cheat could pass

In sandboxed processes:

    task                              the reference, its inputs and its float64 answers
    judge, probes                     one candidate against its reference, and the calls that test it
    interpreter, fake_gpu             Triton on a CPU, and the GPU that candidates see there
    compile, gpu                      cross-compilation; judging and timing on a GPU
    gpu_backends                      what differs between GPU vendors in torch and Triton
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
