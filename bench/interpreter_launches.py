"""Every launch in our interpreter beside Triton's own: how much faster it is, and whether the results are the same.

    python bench/interpreter_launches.py [--teacher FOLDER] [--published FILE] [--out FOLDER] [--most N] [--limit SECONDS]

The candidates are the honest ones of the corpus; what the teacher writes for the bundled problems (kept in FOLDER by
`bench/teacher.py --keep FOLDER`); and published kernels (FILE has lines of JSON with id, reference and candidate), all
at their own sizes. Each runs once on each side in a forked process, one side after the other, with the same seed.
After each launch the bytes of all tensors that were passed are hashed.

Three differences are known and meant, and are switched off for the comparison: ours truncates fp32 operands of tl.dot
to TF32 and rounds to bf16 to nearest even, as a GPU does, where the stock interpreter does not truncate and truncates;
and ours applies a kernel's own combine function as a tree. Where the bytes still differ, the model's output decides:
`stock wrong` means that only ours agrees with the reference.

Must hold: ten times as fast (geometric mean) over launches of 64 programs or more, three times over all, none slower
than 0.8 times; no difference where both agree with the reference. Writes interpreter_launches.json into bench/results.

With --fixed, only the cost of a launch by itself is measured: 5 ms at most. Writes interpreter_fixed.json.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import argparse
import hashlib
import json
import math
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
import triton
from common import RESULTS, machine
from tests.evaluate.corpus import cases, entry_point
from triton.runtime import interpreter as stock

from kernelmill.evaluate import interpreter
from kernelmill.evaluate.fake_gpu import cuda, driver
from kernelmill.evaluate.interpreter import autotune, language, launch
from kernelmill.evaluate.interpreter.memory import atomics, tiles
from kernelmill.evaluate.interpreter.operations import libdevice, numerics, reduce
from kernelmill.evaluate.interpreter.rewriting import BlockCondition
from kernelmill.evaluate.judge import worker
from kernelmill.problems import module_file
from kernelmill.sandbox.server import prepare_to_fork

SIDES = ("stock", "ours")
FIXED_CHILDREN, FIXED_LAUNCHES = 9, 6
FIXED_MS = 5.0
SMALL_REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.rand(64)]
def get_init_inputs():
    return []
"""
SMALL_CANDIDATE = f"""
import torch, triton, triton.language as tl
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        for _ in range({FIXED_LAUNCHES}):
            double[(1,)](x, y, 64, BLOCK=64)
        return y
"""
"""Launches one program that does next to nothing: what a launch costs by itself."""
MANY = 64
BUNDLED = Path(__file__).parents[1] / "data" / "problems"
TOLERANCE = 1e-2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "interpreter_launches")
    parser.add_argument("--most", type=int, default=10**6, help="candidates of each kind")
    parser.add_argument("--only", default="", help="candidates whose name contains this")
    parser.add_argument("--limit", type=int, default=60, help="seconds for one candidate on one side")
    parser.add_argument("--fixed", action="store_true", help="only what a launch costs by itself")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    # New memory is NaN on both sides: what is in it differs between processes, and a launch may write a part only.
    torch.use_deterministic_algorithms(True, warn_only=True)
    warnings.filterwarnings("ignore", message=".*deterministic implementation.*")
    _warm_up()
    if given.fixed:
        return fixed_costs(given.limit)
    rows = []
    for kind, name, reference, candidate in pairs(given):
        if given.only not in name:
            continue
        found = {side: run(side, reference, candidate, given.limit) for side in SIDES}
        rows.append(row := compared(kind, name, found))
        print(json.dumps({key: value for key, value in row.items() if key != "launches"}), flush=True)
    (given.out / "rows.json").write_text(json.dumps(rows, indent=1))
    return summed(rows)


def fixed_costs(limit: int) -> int:
    ms = {"stock": fixed("stock", limit)}
    with tempfile.TemporaryDirectory() as folder:  # what a server of ours does before it forks
        before = os.getcwd()
        os.chdir(folder)
        worker.prepare()
        os.chdir(before)
    prepare_to_fork(gpu=False)
    result = {"machine": machine(), "ms": ms | {"ours": fixed("ours", limit)}}
    (RESULTS / "interpreter_fixed.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    lines = too_much(result)
    for line in lines:
        print(f"NOT MET: {line}")
    return 1 if lines else 0


def too_much(result: dict[str, Any]) -> list[str]:
    found = result["ms"]["ours"].items()
    return [f"a {which} launch costs at most {FIXED_MS} ms: {ms}" for which, ms in found if ms > FIXED_MS]


def fixed(side: str, limit: int) -> dict[str, float]:
    """Milliseconds of a launch of one small program: a kernel's first in a new process, and later ones."""
    found = []
    for _ in range(FIXED_CHILDREN):
        told = run(side, SMALL_REFERENCE, SMALL_CANDIDATE, limit)
        assert told.get("agrees") is True, told
        found.append([one["seconds"] * 1e3 for one in told["launches"]])
    first, later = [launches[0] for launches in found], [ms for launches in found for ms in launches[1:]]
    return {"first": round(statistics.median(first), 2), "later": round(statistics.median(later), 2)}


def pairs(given: argparse.Namespace) -> list[tuple[str, str, str, str]]:
    honest = [
        case
        for case in cases()
        if case.labels == {"correct"} and case.tier == "interpreter" and not case.danger
    ]
    found = [("corpus", case.name, case.reference, case.code) for case in honest[: given.most]]
    if given.teacher is not None:
        for file in sorted(given.teacher.glob("*.py"))[: given.most]:
            problem = file.stem.rsplit("_", 1)[0]
            [source] = [path for path in BUNDLED.rglob("*.py") if _flat(path) == problem]
            found.append(("teacher", problem, source.read_text("utf-8"), file.read_text("utf-8")))
    if given.published is not None:
        lines = [json.loads(line) for line in given.published.read_text("utf-8").splitlines()]
        found += [("published", row["id"], row["reference"], row["candidate"]) for row in lines[: given.most]]
    return found


def _flat(path: Path) -> str:
    return str(path.relative_to(BUNDLED).with_suffix("")).replace("/", "_")


def _warm_up() -> None:
    """What both sides inherit."""
    torch.softmax(torch.ones(2, 2) @ torch.ones(2, 2), -1)
    language.prepare(*libdevice.PACKAGES)
    launch.prepare()


def run(side: str, reference: str, candidate: str, limit: int) -> dict[str, Any]:
    """One candidate on one side, in a child: its launches, and whether its output is right."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.jsonl"
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(limit)
            os.chdir(folder)
            with report.open("w") as lines, open(os.devnull, "w") as nothing:
                os.dup2(nothing.fileno(), 1)
                os.dup2(nothing.fileno(), 2)
                _child(side, reference, candidate, lines)
            os._exit(0)
        _, status, usage = os.wait4(child, 0)
        rows = [json.loads(line) for line in report.read_text().splitlines()]
    launches = [row for row in rows if "kernel" in row]
    end = next((row for row in rows if "kernel" not in row), {"error": f"ended by signal {status & 127}"})
    return {"launches": launches, "peak_mb": usage.ru_maxrss >> 10, **end}


def _child(side: str, reference: str, candidate: str, lines: Any) -> None:
    warnings.simplefilter("ignore")

    def tell(row: dict[str, Any]) -> None:
        lines.write(json.dumps(row) + "\n")
        lines.flush()

    try:
        if side == "ours":
            interpreter.install()
            _as_stock()
        else:
            driver.install()
            cuda.install()
            autotune.install()
        _watch(tell)
        tell({"agrees": _agrees(reference, candidate)})
    except BaseException as error:  # noqa: BLE001  a finding, in a process of its own
        tell({"error": "".join(traceback.format_exception_only(error)).strip()[-300:]})


def _as_stock() -> None:
    """Switch off what is meant to differ."""

    def in_sequence(*ignored: Any) -> Any:
        raise BlockCondition

    numerics.tf32 = lambda data: data
    for module in (numerics, atomics, tiles):
        module.narrow = lambda data: (np.asarray(data, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    reduce._tree = reduce._shifted = in_sequence


def _watch(tell: Any) -> None:
    plain = stock.InterpretedFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        result = plain(self, *args, **kwargs)
        seconds = time.perf_counter() - began
        if not kwargs.get("warmup"):
            programs = math.prod(stock.interpreter_builder.grid_dim)
            tell(
                {
                    "kernel": self.fn.__name__,
                    "programs": programs,
                    "seconds": seconds,
                    "bytes": _hash(args, kwargs),
                }
            )
        return result

    stock.InterpretedFunction.run = run


def _hash(args: Any, kwargs: Any) -> str:
    digest = hashlib.sha256()
    with torch._C.DisableTorchFunction():
        for value in (*args, *kwargs.values()):
            value = getattr(value, "base", value)
            if isinstance(value, torch.Tensor):
                plain = torch.empty(0, dtype=torch.uint8, device="cpu").set_(value.untyped_storage())
                digest.update(plain.numpy().tobytes())
    return digest.hexdigest()


def _agrees(reference: str, candidate: str) -> bool:
    written = Path("candidate.py")
    written.write_text(candidate)
    old = module_file.load(reference, "reference", str(Path("reference.py").resolve()))
    new = module_file.load(candidate, "candidate", str(written.resolve()))
    name = entry_point(reference)
    kind = getattr(new, f"{name}New", None) or new.ModelNew
    with torch.no_grad():
        model, other = (_model(one, old) for one in (getattr(old, name), kind))
        outputs = []
        for one in (model, other):
            torch.manual_seed(1)
            args, kwargs = module_file.inputs(old)
            outputs.append(list(_leaves(one(*_placed(args), **kwargs))))
    expected, got = outputs
    return len(expected) == len(got) and all(
        a.shape == b.shape
        and np.allclose(a.float().numpy(), b.float().numpy(), TOLERANCE, TOLERANCE, equal_nan=True)
        for a, b in zip(expected, got, strict=True)
    )


def _model(kind: Any, reference: Any) -> Any:
    torch.manual_seed(0)
    _, args, kwargs = module_file.init_inputs(reference)
    torch.manual_seed(0)
    return kind(*args, **kwargs).cuda()


def _placed(args: list[Any]) -> list[Any]:
    return [value.cuda() if isinstance(value, torch.Tensor) else value for value in args]


def _leaves(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        yield output.detach().cpu()
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _leaves(item)


def compared(kind: str, name: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    theirs, ours = found["stock"], found["ours"]
    launches = [
        {
            "kernel": a["kernel"],
            "programs": a["programs"],
            "stock_s": round(a["seconds"], 5),
            "ours_s": round(b["seconds"], 5),
            "same": a["bytes"] == b["bytes"],
        }
        for a, b in zip(theirs["launches"], ours["launches"], strict=False)
        if a["kernel"] == b["kernel"] and a["programs"] == b["programs"]
    ]
    ratios = [one["stock_s"] / one["ours_s"] for one in launches]
    same = all(one["same"] for one in launches)
    return {
        "kind": kind,
        "name": name,
        "speed": round(statistics.geometric_mean(ratios), 2) if ratios else None,
        "lowest": round(min(ratios), 2) if ratios else None,
        "programs": max((one["programs"] for one in launches), default=0),
        "same": same,
        "stock": theirs.get("error") or theirs.get("agrees"),
        "ours": ours.get("error") or ours.get("agrees"),
        "peak_mb": ours["peak_mb"],
        "launches": launches,
    }


def summed(rows: list[dict[str, Any]]) -> int:
    launches = [one | {"name": row["name"]} for row in rows for one in row["launches"]]
    ratio = {id(one): one["stock_s"] / one["ours_s"] for one in launches}
    many = [ratio[id(one)] for one in launches if one["programs"] >= MANY]
    both = [row for row in rows if row["stock"] is True and row["ours"] is True]
    only_ours = [row for row in rows if row["stock"] is not True and row["ours"] is True]
    result = {
        "machine": machine() | {"torch": torch.__version__, "triton": triton.__version__},
        "candidates": len(rows),
        "launches": len(launches),
        "launches_of_64": len(many),
        "speed_of_64": round(statistics.geometric_mean(many), 2) if many else None,
        "speed": round(statistics.geometric_mean(ratio.values()), 2) if ratio else None,
        "lowest": round(min(ratio.values()), 2) if ratio else None,
        "below_0.8": [
            [one["name"], one["kernel"], one["stock_s"], one["ours_s"]]
            for one in launches
            if ratio[id(one)] < 0.8
        ],
        "same_bytes": sum(one["same"] for one in launches),
        "different_though_both_right": [row["name"] for row in both if not row["same"]],
        "stock_wrong": [row["name"] for row in only_ours if not _late(row["stock"])],
        "stock_not_done_in_time": [row["name"] for row in only_ours if _late(row["stock"])],
        "ours_wrong": [
            [row["name"], row["ours"]] for row in rows if row["ours"] is not True and row["stock"] is True
        ],
        "both_wrong": [
            [row["name"], row["ours"]] for row in rows if row["ours"] is not True and row["stock"] is not True
        ],
        "peak_mb": max(row["peak_mb"] for row in rows),
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "interpreter_launches.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    lines = unmet(result)
    for line in lines:
        print(f"NOT MET: {line}")
    return 1 if lines else 0


def _late(outcome: Any) -> bool:
    return isinstance(outcome, str) and outcome.startswith("ended by signal")


def unmet(result: dict[str, Any]) -> list[str]:
    bounds = {"speed_of_64": 10.0, "speed": 3.0, "lowest": 0.8}
    lines = [
        f"{name} at least {least}: {result[name]}"
        for name, least in bounds.items()
        if (result[name] or 0) < least
    ]
    return lines + [
        f"{name}: {result[name]}" for name in ("different_though_both_right", "ours_wrong") if result[name]
    ]


if __name__ == "__main__":
    sys.exit(main())
