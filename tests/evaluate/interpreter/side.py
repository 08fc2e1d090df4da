"""Run kernels in one interpreter, for test_same_as_stock: `python -m tests.evaluate.interpreter.side stock|ours`.

Reads lines of JSON from standard input: a kernel's source, its grid, and the tensors and constants to pass. Answers
each with the bytes of all tensors after the launch, or with the error's name.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch

from kernelmill.problems import module_file


def launched(request: dict, folder: str, number: int, device: str) -> dict:
    file = os.path.join(folder, f"kernel_{number}.py")
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(request["source"])
    kernel = module_file.load(request["source"], f"kernel_{number}", file).kernel
    tensors = {
        name: torch.from_numpy(np.array(values, dtype=dtype)).to(device, getattr(torch, kind))
        for name, (dtype, kind, values) in request["tensors"].items()
    }
    try:
        kernel[tuple(request["grid"])](**tensors, **request["constants"])
    except Exception as error:  # noqa: BLE001  the answer
        cause = error.__cause__ or error
        return {"error": type(cause).__name__}
    return {
        name: one.cpu().contiguous().view(torch.uint8).numpy().tobytes().hex()
        for name, one in tensors.items()
    }


def main(side: str) -> None:
    torch.set_num_threads(1)
    if side == "ours":
        from kernelmill.evaluate import interpreter

        interpreter.install()
    device = "cuda" if side == "ours" else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        for number, line in enumerate(sys.stdin):
            print(json.dumps(launched(json.loads(line), folder, number, device)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
