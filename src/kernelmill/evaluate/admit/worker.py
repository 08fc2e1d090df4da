"""Task admission: a worker for `kernelmill.sandbox`.

It executes untrusted code, so call `handle` only in a sandboxed process.

The battery runs at sizes that the interpreter can handle (`task.fit_size.pick`). The result holds for the
task's formula, but not for what only the full size would show. (A softmax over so many columns that all of
them are near zero is judged relative to its own size anyway.)
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # `@torch.compile` would start compilers, which a child may not do

from kernelmill.evaluate.admit.cheats import battery
from kernelmill.evaluate.judge.tolerance import Policy
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.task.fit_size import SMALL, pick
from kernelmill.evaluate.task.reference import BadReference


def prepare() -> None:
    """Do torch's one-time work before any child is forked."""
    warnings.simplefilter("ignore")
    offline_models.prepare()
    admission(_WARM_UP)


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Handle one request.

    `reference` is the source; `entry_point`, `limits` (fields of `task.fit_size.SizeLimits`), `seed` and `tf32`
    are optional.
    """
    warnings.simplefilter("ignore")
    return admission(
        request["reference"],
        request.get("entry_point"),
        request.get("limits"),
        request.get("seed", 0),
        request.get("tf32", False),
    )


def admission(
    code: str,
    entry_point: str | None = None,
    limits: dict[str, Any] | None = None,
    seed: int = 0,
    tf32: bool = False,
) -> dict[str, Any]:
    """Return `admitted`, `reasons` (one line each) and `details` of one problem."""
    try:
        picked = pick(code, entry_point, dataclasses.replace(SMALL, **(limits or {})), seed=seed)
        found = battery(picked.reference, seed, Policy(tf32=tf32))
    except BadReference as error:
        return {"admitted": False, "reasons": [f"it cannot be tried: {error}"], "details": {}}
    size = {"kind": picked.version.kind, "changes": picked.version.changes, "elements": picked.size.elements}
    return {"admitted": found.admitted, "reasons": found.reasons, "details": {"size": size, **found.details}}


_WARM_UP = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.softmax(self.linear(x), -1)

def get_inputs():
    return [torch.randn(4, 8)]
"""
