"""`worker` for batches, with compressed replies.

A reply is limited to 8 MB, and the files of a large model are highly repetitive. `model_folder.unpacked` is
the other end. This executes untrusted code: call `handle` only in a sandboxed process.
"""

from __future__ import annotations

import base64
import json
import warnings
import zlib
from typing import Any

from kernelmill.decompose import worker
from kernelmill.decompose.prove.tree import TREE
from kernelmill.decompose.record.capture import capture
from kernelmill.decompose.record.graph import graph_of
from kernelmill.evaluate.task import offline_models


def prepare() -> None:
    offline_models.prepare()
    worker.prepare()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    """Like `worker.handle`, plus `assumptions` to add to the tree.

    With `graph`, return only the recorded graph.
    """
    if request.get("graph"):
        warnings.simplefilter("ignore")
        return _packed(graph_of(capture(request["code"], request["entry_point"])))
    files = worker.handle(request)["files"]
    if request.get("assumptions"):
        tree = json.loads(files[TREE])
        tree["metadata"]["assumptions"] += request["assumptions"]
        files[TREE] = json.dumps(tree, indent=2) + "\n"
    return _packed(files)


def _packed(value: dict[str, Any]) -> dict[str, Any]:
    return {"packed": base64.b64encode(zlib.compress(json.dumps(value).encode("ascii"))).decode("ascii")}
