"""The files that `kernelmill decompose` has written: python bench/decompose_files.py OUT [--part leaves|fused|meta|cuda]

Must hold: every kernel file runs on its own with nothing but torch, in a process that can import neither this project nor any package that
torch itself does not bring; every emitted file runs on `meta`, where a tensor that was made on the CPU shows, and a random 100 by `.cuda()`, where there is a GPU
(`--part cuda`); and the kernels of each level 2
problem, fused again by Inductor, give what the problem's own source gives.

Needs the standard library and torch, nothing else, so that it runs on any machine that has the files (with `--processes` and `--room` for a
large one). A part's results replace those of its last run in bench/results/decompose_files.json, and leave the other part's as they are.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import importlib.metadata
import importlib.util
import json
import math
import multiprocessing
import os
import random
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

PARTS = ("leaves", "fused", "meta")
ON_A_GPU = "cuda"
SAMPLE = 100
LIMIT_S = 300
RESULTS = Path(__file__).parent / "results/decompose_files.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=lambda text: Path(text).resolve())
    parser.add_argument("--part", choices=(*PARTS, ON_A_GPU), action="append")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--room", type=int, default=6, help="GB that inputs and outputs may take together")
    given = parser.parse_args()
    leaves = sorted(given.output.rglob("level_0_kernel/*.py"))
    trees = sorted(path.parent for path in given.output.rglob("decomposition_tree.json"))
    todo = {
        "leaves": leaves,
        "fused": [path for path in trees if path.parent.name == "level2"],
        "meta": [file for path in trees for file in sorted(path.glob("level_*/*.py"))],
    }
    every = todo["meta"]
    todo[ON_A_GPU] = random.Random(8).sample(every, min(SAMPLE, len(every)))
    found: dict[str, Any] = json.loads(given.results.read_text()) if given.results.exists() else {}
    parts = given.part or PARTS
    for part in parts:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            if part == "leaves":
                faults = tried(run_alone, leaves, given.processes, given.room << 30, _room)
            else:
                one = {"fused": fuse, "meta": run_on_meta, ON_A_GPU: run_on_cuda}[part]
                faults = tried(one, todo[part], given.processes)
        found[part] = {
            "tried": len(todo[part]),
            "failed": {str(path.relative_to(given.output)): why for path, why in faults.items()},
            "wall_s": round(time.monotonic() - start),
            "processes": given.processes,
            "torch": importlib.metadata.version("torch"),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
    given.results.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if all(found[part]["tried"] and not found[part]["failed"] for part in parts) else 1


def tried(
    one: Callable[[Path], None],
    paths: list[Path],
    processes: int,
    room: int = 0,
    needs: Callable[[Path], int] = lambda path: 0,
) -> dict[Path, str]:
    """What failed, and why: each in a process of its own, several at a time unless they need more room (bytes) together."""
    import torch  # once, for all the processes that are forked from this one

    torch.set_num_threads(1)
    torch.relu(torch.ones(1, device="meta"))  # the first one imports for two seconds
    context = multiprocessing.get_context("fork")
    waiting, running, faults = list(reversed(paths)), dict[Path, Any](), dict[Path, str]()
    while waiting or running:
        while waiting and len(running) < processes:
            if running and sum(map(needs, [waiting[-1], *running])) > room:
                break
            path = waiting.pop()
            end, other = context.Pipe(duplex=False)
            process = context.Process(target=_report, args=(one, path, other))
            process.start()
            other.close()
            running[path] = (process, end, time.monotonic())
        for path, (process, end, began) in list(running.items()):
            late = time.monotonic() - began > LIMIT_S
            if late:
                process.kill()
            elif process.is_alive() and not end.poll(0.02):
                continue
            try:
                why = f"longer than {LIMIT_S} s" if late else end.recv()
            except EOFError:
                process.join()
                why = f"ended with {process.exitcode}"
            process.join()
            del running[path]
            if why:
                faults[path] = why
                print(f"{path}: {why}", file=sys.stderr)
    return faults


def _report(one: Callable[[Path], None], path: Path, end: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            one(path)
            why = ""
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is what is looked for
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    end.send(why)


# ------------------------------------------------------------------------------------------------------- a leaf


class _NothingElse:
    """Refuses what neither Python nor torch has brought so far."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {
            loaded.partition(".")[0] for loaded in sys.modules
        }:
            raise ModuleNotFoundError(f"{name}: a leaf may import torch alone")


@functools.cache
def _room(path: Path) -> int:
    """The bytes of what it takes and gives, by its tree."""
    import torch

    nodes = json.loads((path.parents[1] / "decomposition_tree.json").read_text())["nodes"].values()
    node = next(node for node in nodes if node["path"] == f"{path.parent.name}/{path.name}")
    return sum(
        math.prod(shape) * getattr(torch, dtype).itemsize
        for side in ("input", "output")
        for shape, dtype in zip(node[f"{side}_shapes"], node[f"{side}_dtypes"], strict=True)
    )


def run_alone(path: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "kernelmill"]:
        del sys.modules[name]
    sys.path[:] = [part for part in sys.path if part.startswith((sys.base_prefix, sys.prefix))]
    sys.meta_path.insert(0, _NothingElse())  # type: ignore[arg-type]
    runpy.run_path(str(path), run_name="__main__")


# ------------------------------------------------------------------------------------------------------- another device


def run_on_meta(path: Path) -> None:
    """A GPU is not needed to see that a file keeps to its inputs' device."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class OneDevice(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
            if len({one.device for one in tensors if one.dim()}) > 1:
                raise RuntimeError(f"{func} gets tensors of two devices")
            return func(*args, **(kwargs or {}))

    file = _loaded(path, "problem")
    with torch.device("meta"):
        inputs = file.get_inputs()
        try:
            model = file.Model(*file.get_init_inputs()).eval()
        except RuntimeError as error:
            # A constructor may read numbers (`linspace(...)` as rates of dropout): made on the CPU and moved, as by `.cuda()`.
            if "cannot be called on meta tensors" not in str(error):
                raise
            with torch.device("cpu"):
                model = file.Model(*file.get_init_inputs()).eval().to("meta")
    with torch.no_grad(), OneDevice():
        results = tree_leaves(model(*inputs))
    places = {str(one.device) for one in results if isinstance(one, torch.Tensor)}
    if places != {"meta"}:
        raise RuntimeError(f"its results are on {', '.join(sorted(places))}")


def run_on_cuda(path: Path) -> None:
    """As somebody would who has a GPU: made on the CPU, then moved."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    file = _loaded(path, "problem")
    model = file.Model(*file.get_init_inputs()).eval().cuda()
    inputs = tree_map(lambda one: one.cuda() if isinstance(one, torch.Tensor) else one, file.get_inputs())
    with torch.no_grad():
        results = [one for one in tree_leaves(model(*inputs)) if isinstance(one, torch.Tensor)]
    torch.cuda.synchronize()
    places = {one.device.type for one in results}
    if places != {"cuda"}:
        raise RuntimeError(f"its results are on {', '.join(sorted(places))}")


# ------------------------------------------------------------------------------------------------------- a fusion


def fuse(folder: Path) -> None:
    import torch

    proof = folder / "verification"
    sys.path.insert(0, str(proof))
    original, made = (
        _loaded(proof / "original.py", "original"),
        _loaded(proof / "composition_test.py", "made"),
    )
    reduced = json.loads((proof / "test_results.json").read_text())["numerical_comparison"]["reduced"]
    names = json.loads((proof / "weight_map.json").read_text())["refactored_to_original"]
    torch.manual_seed(0)
    source, fused = original.Model(*original.get_init_inputs()).eval(), made.Model().eval()
    # Scales of 1 and shifts of 0 leave nothing to compare of a mean after a norm.
    for weight in source.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    weights = source.state_dict()
    fused.load_state_dict({name: weights[names[name]] for name in fused.state_dict()})
    inputs = [torch.rand(shape) for shape in reduced["to"]] if reduced else original.get_inputs()
    torch._dynamo.config.reorderable_logging_functions.add(
        warnings.warn
    )  # InstanceNorm warns, and that splits no fusion
    with torch.no_grad():
        expected, found = source(*inputs), torch.compile(fused, fullgraph=True)(*inputs)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def _loaded(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
