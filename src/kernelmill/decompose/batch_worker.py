"""`worker` for batches: the files of a large model come packed, because a reply may have 8 MB and they say everything several times.

`batch_files.unpacked` is the other side. It executes a stranger's code: call `handle` in a confined process and nowhere else.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from kernelmill.decompose import worker
from kernelmill.evaluate import offline_models


def prepare() -> None:
    offline_models.prepare()
    worker.prepare()


def handle(request: dict[str, Any]) -> dict[str, Any]:
    files = json.dumps(worker.handle(request)["files"]).encode("ascii")
    return {"packed": base64.b64encode(zlib.compress(files)).decode("ascii")}
