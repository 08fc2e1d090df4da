"""`check_worker` for problems that use `transformers`: models come from a table of sizes, with random weights (`offline_models`)."""

from __future__ import annotations

import importlib
from typing import Any

from kernelmill.problem_sets import check_worker, offline_models


def prepare() -> None:
    """The modules of the known models are imported here, once; a child would take seconds for each."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    logging.set_verbosity_error()
    offline_models.install()
    for kind in sorted({entry["type"] for entry in offline_models.table().values()}):
        importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    check_worker.prepare()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    with offline_models.sized("full" if request["step"] == "full" else "small"):
        return check_worker.handle(request)
