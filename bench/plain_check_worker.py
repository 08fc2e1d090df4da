"""What most evaluators do, to measure ours against: a worker for `kernelmill.sandbox`, one process for everything.

Three seeds that everybody knows; the reference and the candidate in the same process, the reference first, on the same
inputs; `torch.allclose` with 1e-2 for both tolerances. Weights are equal because the seed is. It looks at no source, runs
nothing twice, and believes whatever torch says after the candidate's code has run.

It shares the evaluator's interpreter, because without a GPU nothing runs otherwise. That helps it: fresh memory does not
hold old answers, and what the interpreter cannot run counts as an error.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from kernelmill.evaluate import interpreter
from kernelmill.problems import module_file

SEEDS = (42, 43, 44)
TOLERANCE = 1e-2


def prepare() -> None:
    """There is nothing to warm up but the imports above."""
    torch.set_num_threads(1)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """`{"passed": bool}`; what the candidate raises goes to the caller."""
    warnings.simplefilter("ignore")
    interpreter.install()
    reference = module_file.load(
        request["reference"], "reference", _written("reference.py", request["reference"])
    )
    candidate = module_file.load(
        request["candidate"], "candidate", _written("candidate.py", request["candidate"])
    )
    entry_point = request["entry_point"]
    kind = getattr(candidate, f"{entry_point}New", None) or candidate.ModelNew
    with torch.no_grad():
        model, new = _model(getattr(reference, entry_point), reference), _model(kind, reference)
        return {"passed": all(_agree(model, new, reference, seed) for seed in SEEDS)}


def _written(name: str, code: str) -> str:
    with open(name, "w", encoding="utf-8") as file:
        file.write(code)
    return os.path.abspath(name)


def _model(kind: Any, reference: Any) -> Any:
    torch.manual_seed(SEEDS[0])
    _, args, kwargs = module_file.init_inputs(reference)
    torch.manual_seed(SEEDS[0])
    return kind(*args, **kwargs).cuda()


def _agree(model: Any, new: Any, reference: Any, seed: int) -> bool:
    torch.manual_seed(seed)
    args, kwargs = module_file.inputs(reference)
    args = [_on_device(value) for value in args]
    kwargs = {name: _on_device(value) for name, value in kwargs.items()}
    # In plain sight of whoever looks through the caller's frames, as in the loops that this stands for.
    output = model(*args, **kwargs)
    output_new = new(*args, **kwargs)
    expected, got = list(_leaves(output)), list(_leaves(output_new))
    return len(expected) == len(got) and all(
        a.shape == b.shape and torch.allclose(a, b, atol=TOLERANCE, rtol=TOLERANCE)
        for a, b in zip(expected, got, strict=True)
    )


def _on_device(value: Any) -> Any:
    return value.cuda() if isinstance(value, torch.Tensor) else value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
