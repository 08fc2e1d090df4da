"""Triton's own tests of its language, in Triton's interpreter and in ours.

    python bench/interpreter_conformance.py --triton PATH/TO/triton [--only stock|ours|compare] [--out FOLDER] [--jobs N]
        [--sample N] [--most N] [--files FILE ...] [--limit SECONDS]

PATH is a checkout of Triton at the tag of the installed version (only python/test, python/tutorials and python/triton/__init__.py are read). Every test
runs in a process group of its own with a time limit (`conformance_plugin.py`). FOLDER gets a line of JSON for each test; a side that was run before is
compared as it is there. `--sample 10` takes every tenth case, `--most 40` at most forty cases of one test function, both by a hash of the case's name.

The tests are of four kinds:

    marked      upstream marks them for the interpreter
    lifted      they skip themselves in the interpreter (bfloat16, mostly); here they run
    unmarked    upstream runs them on a GPU only. Many read what a compiler wrote, which no interpreter can
    tutorial    the scripts of python/tutorials without their measurements

A test that had its kernels compiled, because it resets Triton's settings, says nothing of the stock interpreter.

Must hold: no test passes in Triton's interpreter and fails in ours, except those that expect the class InterpreterError, which ours does not raise.
A test that ours refuses (`unsupported`) is listed by what it lacks. Also listed: the tests that passed although ours observed a race or an access
out of bounds. A side that was ended early is compared as far as it got; what fails in ours then and was not run in stock
is listed, too. Writes interpreter_conformance.json into bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from common import RESULTS, machine

HERE = Path(__file__).resolve().parent
UNIT = "python/test/unit"
FILES = (
    *(
        f"{UNIT}/language/test_{name}.py"
        for name in (
            "core", "standard", "random", "block_pointer", "tensor_descriptor", "conversions", "annotations", "tuple",
            "frontend", "libdevice", "decorator", "mxfp", "line_info", "matmul", "pipeliner",
        )
    ),
    f"{UNIT}/runtime/test_launch.py",
    f"{UNIT}/runtime/test_autotuner.py",
    "python/tutorials/*.py",
)  # fmt: skip
LEFT_OUT = {
    "language/test_subprocess.py": "its kernels run in processes that it starts, where ours is not installed",
    "language/test_compile_errors.py": "what the compiler rejects, and how",
    "language/test_compile_only.py": "what the compiler writes",
    "language/test_reproducer.py": "what the compiler writes",
    "language/test_warp_specialization.py": "how the compiler divides a kernel among warps",
    "tutorials/gluon": "another language, without an interpreter",
}
SIDES = ("stock", "ours")
KINDS = ("marked", "lifted", "unmarked", "tutorial")
PASSED = ("passed", "xfailed")
EXAMPLES = 3
Record = dict[str, Any]
Pair = tuple[Record, Record]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triton", type=Path, required=True)
    parser.add_argument("--only", choices=(*SIDES, "compare"))
    parser.add_argument("--out", type=Path, default=Path("runs/conformance"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--sample", type=int, default=1)
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--files", nargs="+", help="e.g. test_core.py or 06-fused-attention.py")
    parser.add_argument("--limit", type=float, default=60)
    given = parser.parse_args()
    checked_version(given.triton)
    given.out.mkdir(parents=True, exist_ok=True)
    for side in SIDES if given.only is None else [side for side in SIDES if side == given.only]:
        run(side, given)
    records = {side: read(given.out, side) for side in SIDES}
    missing = [side for side, found in records.items() if not found]
    if missing:
        print(f"nothing to compare yet: {' and '.join(missing)} not run into {given.out}")
        return 0
    result = compared(records["stock"], records["ours"])
    result["run"] = {side: json.loads((given.out / f"{side}.json").read_text()) for side in SIDES}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"machine": machine(), **result}, indent=1)
    (RESULTS / "interpreter_conformance.json").write_text(text + "\n")
    show(result)
    return 1 if result["stock passes, ours fails"] or result["only in one"]["ours, and not passed"] else 0


def checked_version(checkout: Path) -> None:
    file = checkout / "python/triton/__init__.py"
    if not file.is_file():
        sys.exit(f"{file} is missing: --triton is a checkout of the Triton repository")
    found = re.search(r"__version__ = ['\"](.*?)['\"]", file.read_text())
    if found is None or found[1] != version("triton"):
        sys.exit(f"{checkout} is not Triton {version('triton')}: check out the tag v{version('triton')}")


def run(side: str, given: Any) -> None:
    """All parts of a side at once, each a pytest process; pytest's own output goes to a file."""
    for old in given.out.glob(f"{side}*"):
        old.unlink()
    paths = [str(path) for pattern in FILES for path in sorted(given.triton.resolve().glob(pattern))]
    if given.files:
        paths = [path for path in paths if Path(path).name in given.files]
    if not paths:
        sys.exit("no such test file")
    about = {
        "files": [os.path.relpath(path, given.triton.resolve()) for path in paths],
        "sample": given.sample,
        "most": given.most,
        "limit": given.limit,
        **{name: version(name) for name in ("triton", "torch", "numpy", "pytest")},
        "python": platform.python_version(),
    }
    (given.out / f"{side}.json").write_text(json.dumps(about | {"finished": False}, indent=1) + "\n")
    processes = []
    for part in range(given.jobs):
        environment = os.environ | {
            "TRITON_INTERPRET": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep),
            "CONFORMANCE_SIDE": side,
            "CONFORMANCE_RECORDS": str((given.out / f"{side}-{part}.jsonl").resolve()),
            "CONFORMANCE_PART": f"{part}/{given.jobs}",
            "CONFORMANCE_SAMPLE": str(given.sample),
            "CONFORMANCE_MOST": str(given.most),
            "CONFORMANCE_LIMIT": str(given.limit),
        }
        line = [sys.executable, "-m", "pytest", "-q", "-s", "--tb=native", "--continue-on-collection-errors"]
        line += ["-p", "no:cacheprovider", "-p", "conformance_plugin", "--device=cpu"]
        line += [f"--rootdir={given.triton.resolve()}", *paths]
        with (given.out / f"{side}-{part}.log").open("w") as log:
            processes.append(
                subprocess.Popen(
                    line, env=environment, cwd=given.triton / UNIT, stdout=log, stderr=subprocess.STDOUT
                )
            )
    for part, process in enumerate(processes):
        # 1: tests failed or were not collected. 5: this part has no tests.
        if process.wait() not in (0, 1, 5):
            sys.exit(f"pytest ended with {process.returncode}: see {given.out / f'{side}-{part}.log'}")
    about |= {"finished": True, **counted(given.out, side)}
    (given.out / f"{side}.json").write_text(json.dumps(about, indent=1) + "\n")


def lines(folder: Path, side: str) -> Iterable[Record]:
    for file in sorted(folder.glob(f"{side}-*.jsonl")):
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def counted(folder: Path, side: str) -> dict[str, int]:
    about = next(line for line in lines(folder, side) if "collected" in line)
    return {"collected": about["collected"], "chosen": about["chosen"]}


def read(folder: Path, side: str) -> dict[str, Record]:
    return {line["id"]: line for line in lines(folder, side) if "id" in line}


def kind_of(stock: Record, ours: Record) -> str:
    if "python/tutorials" in stock["id"]:
        return "tutorial"
    if stock.get("lifted") or ours.get("lifted"):
        return "lifted"
    return "marked" if stock.get("marked") else "unmarked"


def outcome_of(record: Record) -> str:
    """passed, skipped, compiled, unsupported, exception class, wrong result, error, time limit, crashed or not collected."""
    if record.get("compiled"):
        return "compiled"
    if record["outcome"] in PASSED:
        return "passed"
    if record.get("other_exception"):
        return "exception class"
    if record["outcome"] != "failed":
        return str(record["outcome"])
    if record.get("unsupported"):
        return "unsupported"
    return "wrong result" if record["error"].startswith(("AssertionError", "Failed: ")) else "error"


def compared(stock: dict[str, Record], ours: dict[str, Record]) -> dict[str, Any]:
    pairs = [(stock[name], ours[name]) for name in stock if name in ours]
    table: dict[str, dict[str, Counter[str]]] = {kind: {side: Counter() for side in SIDES} for kind in KINDS}
    seconds = Counter[str]()
    for pair in pairs:
        for side, record in zip(SIDES, pair, strict=True):
            table[kind_of(*pair)][side][outcome_of(record)] += 1
            seconds[side] += record.get("seconds", 0)

    def listed(chosen: Callable[[str, str], bool], shown: int) -> dict[str, Any]:
        return grouped([p for p in pairs if chosen(outcome_of(p[0]), outcome_of(p[1]))], shown)

    def failed(outcome: str) -> bool:
        return outcome not in ("passed", "skipped", "compiled")

    refused = ("unsupported", "exception class")
    return {
        "tests": {kind: {side: dict(count) for side, count in both.items()} for kind, both in table.items()},
        "seconds": {side: round(seconds[side]) for side in SIDES},
        "only in one": {
            "stock": len(stock.keys() - ours.keys()),
            "ours": len(ours.keys() - stock.keys()),
            "ours, and not passed": sorted(
                name
                for name in ours.keys() - stock.keys()
                if outcome_of(ours[name]) not in ("passed", "skipped")
            ),
        },
        "left out": LEFT_OUT,
        "stock passes, ours fails": listed(lambda a, b: a == "passed" and b not in ("passed", *refused), 1),
        "stock passes, ours declines": listed(lambda a, b: a == "passed" and b == "unsupported", 1),
        "stock passes, ours raises another class": listed(
            lambda a, b: a == "passed" and b == "exception class", 1
        ),
        "ours passes, stock fails": listed(lambda a, b: b == "passed" and a != "passed", 0),
        "both fail": listed(lambda a, b: failed(a) and failed(b), 1),
        "observed in tests that pass": observations(pairs),
    }


def function_of(record: Record) -> str:
    return str(record["id"]).removeprefix(f"{UNIT}/").split("[")[0]


def reason_of(record: Record) -> str:
    """The error without what differs between the cases of a test."""
    text = record.get("unsupported") or record["error"]
    return re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[-+]?\d+)?", "#", text)[:200]


def grouped(pairs: list[Pair], shown: int) -> dict[str, Any]:
    """By kind of test and of failure, then by function and error: how many cases, and some of them.

    `shown` is the side whose failure is told.
    """
    groups: dict[str, dict[tuple[str, str], list[Record]]] = defaultdict(lambda: defaultdict(list))
    for pair in pairs:
        record = pair[shown]
        key = f"{kind_of(*pair)}: {outcome_of(record)}"
        groups[key][function_of(record), reason_of(record)].append(record)
    return {
        key: {
            "cases": sum(map(len, found.values())),
            "tests": [
                {
                    "test": function,
                    "cases": len(records),
                    "error": records[0]["error"],
                    **{name: records[0][name] for name in ("at", "line") if records[0].get(name)},
                    "examples": [r["id"].partition("[")[2].removesuffix("]") for r in records[:EXAMPLES]],
                }
                for (function, _), records in sorted(found.items(), key=lambda item: -len(item[1]))
            ],
        }
        for key, found in sorted(groups.items(), key=lambda item: -sum(map(len, item[1].values())))
    }


def observations(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Races and accesses out of bounds that ours saw in tests that pass: an error of the test, or of ours."""
    found: dict[str, list[Record]] = defaultdict(list)
    for _, record in pairs:
        if outcome_of(record) == "passed" and record.get("observed"):
            found[function_of(record)].append(record)
    return [
        {
            "test": function,
            "cases": len(records),
            "out_of_bounds": sum("out_of_bounds" in record for record in records),
            "races": sum("races" in record for record in records),
            "example": records[0]["id"].partition("[")[2].removesuffix("]"),
            "observed": records[0]["observed"],
        }
        for function, records in sorted(found.items(), key=lambda item: -len(item[1]))
    ]


def show(result: dict[str, Any]) -> None:
    outcomes = sorted(
        {name for both in result["tests"].values() for count in both.values() for name in count}
    )
    outcomes.sort(key=lambda name: name != "passed")
    print(f"{'':18}" + "".join(f"{name:>17}" for name in outcomes))
    for kind, both in result["tests"].items():
        for side, count in both.items():
            print(f"{kind:10}{side:8}" + "".join(f"{count.get(name, 0):17}" for name in outcomes))
    for title, found in result.items():
        if title in ("stock passes, ours fails", "stock passes, ours declines", "ours passes, stock fails"):
            print(f"\n{title}: {sum(group['cases'] for group in found.values())}")
            for key, group in found.items():
                print(f"  {key}: {group['cases']}")
                for test in group["tests"][:8]:
                    print(f"    {test['cases']:5} {test['test'].rpartition('/')[2]}: {test['error'][:110]}")


if __name__ == "__main__":
    sys.exit(main())
