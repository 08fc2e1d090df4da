"""The convolution kernels that are written here, run by Triton's interpreter, against torch's own convolutions."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kernelmill.generate.inductor.convolution import Call, kernel, launch
from kernelmill.generate.inductor.variants import VARIANTS

pytestmark = pytest.mark.slow
COUNT = 32
RUN = """
import json, sys
import torch, triton
import triton.language as tl
import kernels

for case in json.load(open(sys.argv[1])):
    torch.manual_seed(case["number"])
    x, weight = torch.randn(case["x_shape"]), torch.randn(case["weight_shape"])
    bias = torch.randn(case["channels"]) if case["bias"] else None
    function = getattr(torch.nn.functional, case["function"])
    options = {key: case[key] for key in ("stride", "padding", "dilation", "groups")}
    if case["output_padding"] is not None:
        options["output_padding"] = case["output_padding"]
    wanted = function(x, weight, bias, **options)
    out = torch.full_like(wanted, float("nan"))
    exec(f"kernels.{case['launch']}")
    difference = (out - wanted).abs().max().item()
    print(json.dumps([case["number"], difference, wanted.abs().max().item()]))
"""


def some(number: int) -> tuple[Call, dict[str, Any]]:
    """A convolution of any of the kinds, and what torch needs to do the same."""
    dice = random.Random(number)
    rank = dice.choice((1, 2, 3))
    transposed = dice.random() < 0.5
    groups = dice.choice((1, 1, 2))
    in_each, out_each = dice.choice((1, 2, 5, 33)), dice.choice((1, 3, 34))
    if dice.random() < 0.3:
        groups, in_each = dice.choice((3, 5)), 1
    window = [dice.choice((1, 2, 3)) for _ in range(rank)]
    stride = [dice.choice((1, 2, 3) if rank == 1 else (1, 2)) for _ in range(rank)]
    dilation = [dice.choice((1, 1, 2)) for _ in range(rank)]
    padding = [dice.randrange(0, 3) for _ in range(rank)]
    sizes = [dice.randrange(5, 7) if rank == 3 else dice.randrange(7, 10) for _ in range(rank)]
    more = [dice.randrange(0, max(step, gap)) for step, gap in zip(stride, dilation, strict=True)]
    first, second = (groups * in_each, out_each) if transposed else (groups * out_each, in_each)
    call = Call(
        "x",
        "weight",
        "bias" if dice.random() < 0.5 else None,
        [str(one) for one in stride],
        [str(one) for one in padding],
        [str(one) for one in dilation],
        transposed,
        str(groups),
        [str(one) for one in window],
        second == 1,
    )
    return call, {
        "number": number,
        "x_shape": [dice.choice((1, 2)), groups * in_each, *sizes],
        "weight_shape": [first, second, *window],
        "channels": groups * out_each,
        "bias": call.bias is not None,
        "function": f"conv{'_transpose' if transposed else ''}{rank}d",
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "output_padding": more if transposed else None,
    }


@pytest.mark.heavy
def test_every_kind_of_convolution_gives_what_torch_gives(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    cases = []
    for number in range(COUNT):
        call, case = some(number)
        texts[call.name] = kernel(call)
        grid, arguments = launch(call, "out", VARIANTS[number % len(VARIANTS)])
        cases.append(case | {"launch": f"{call.name}[{grid}]({', '.join(arguments)})", "call": asdict(call)})
    head = "import triton\nimport triton.language as tl\n"
    (tmp_path / "kernels.py").write_text(head + "\n\n".join(texts.values()), encoding="utf-8")
    (tmp_path / "run.py").write_text(RUN, encoding="utf-8")
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "run.py", "cases.json"],
        cwd=tmp_path,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == COUNT
    wrong = [cases[number] for number, off, size in found if not off <= 1e-5 * max(1.0, size)]
    assert not wrong, wrong[0]
    assert len(texts) > 11, "the cases are of few kinds"
