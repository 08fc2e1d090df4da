"""`check_worker` for problems that use `transformers`.

Models are built from a table of sizes, with random weights (`evaluate.task.offline_models`).
"""

from __future__ import annotations

import importlib
from typing import Any

from kernelmill.evaluate.task import offline_models
from kernelmill.problems.sets import check_worker


def prepare() -> None:
    offline_models.load("small")
    _count_positions()
    check_worker.prepare()


class _Counted:
    """Positions 0, 1, 2 …, whose maximum is known from their shape."""

    def __init__(self, positions: Any) -> None:
        self._positions = positions
        self.shape = positions.shape

    def __getitem__(self, at: int) -> Any:
        return self._positions[at]

    def max(self) -> Any:
        return self

    def item(self) -> int:
        return int(self.shape[1]) - 1


def _count_positions() -> None:
    """Patch Reformer, which reads the maximum of its positions.

    Fake tensors have no values, and a real run takes minutes.
    """
    reformer: Any = importlib.import_module("transformers.models.reformer.modeling_reformer")
    kind = reformer.AxialPositionEmbeddings
    plain = kind.forward
    kind.forward = lambda self, positions: plain(self, _Counted(positions))


def handle(request: dict[str, Any]) -> dict[str, Any]:
    with offline_models.sized("full" if request["step"] == "full" else "small"):
        return check_worker.handle(request)
