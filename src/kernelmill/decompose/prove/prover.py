"""Prove a decomposed model from its files alone: each step, and the whole as a composition of kernels.

    with Prover() as prover:
        proof = prove_folder(Path("output/level3/5_AlexNet"), prover)

Untrusted code runs only in sandboxed children, one per claim (`prove.worker`); this module reads files and
writes results. Old results are deleted first and the tree says NOT_RUN until the end, so a PASS always refers
to the current files.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernelmill.base.whole_file import replacing
from kernelmill.decompose.prove.tree import TREE, Claim, Tree, Unreadable
from kernelmill.decompose.prove.uses import level_faults, proven_parts, shape_faults, use_faults
from kernelmill.errors import OutputError
from kernelmill.evaluate.task import offline_models
from kernelmill.sandbox import Reply, Sandbox
from kernelmill.sandbox.pool import Pool

WORKER = "kernelmill.decompose.prove.worker"
MEMORY_MB, TIMEOUT = 5120, 300.0
RESULTS = ("verification_result.json", "coverage_report.json")
SUMMARIES = ("test_results.json", "step_verification_summary.json", "coverage_summary.json")
_PARTIAL = 80.0
_USED = 0.9
"""Fraction of a process's memory that tensors may use."""
_PAGES = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 25),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
}
"""Allocations under 32 MB reuse freed memory; larger ones use huge pages and return to the OS at once.
Reusing memory for all sizes took an eighth less time but up to twice the memory; reusing none took a third
more time."""
_FLOPS, _FLOPS_ALONE = 2 * 10**11, 4 * 10**12
"""Limits for a run whose inputs cannot be made smaller."""


@dataclass
class Proof:
    """The result for one model. `lines` say why it is not PASS."""

    folder: Path
    name: str
    status: str = "PASS"
    lines: list[str] = field(default_factory=list)
    steps: int = 0
    passed: int = 0
    composition: str = "NOT_RUN"
    coverage: float | None = None
    reduced: bool = False
    seconds: float = 0.0

    def fail(self, status: str, lines: list[str]) -> None:
        self.status = "FAIL" if "FAIL" in (status, self.status) else status
        self.lines += lines


class Prover:
    """The sandboxed processes that run claims, `workers` at a time.

    Each has `timeout` seconds and `memory_mb`. A claim that needs more gets exclusive use of the machine.
    """

    def __init__(self, workers: int = 2, timeout: float = TIMEOUT, memory_mb: int = MEMORY_MB) -> None:
        self.workers, self.timeout, self.memory_mb = workers, timeout, memory_mb
        self._gate = threading.Condition()
        self._running, self._alone, self._closed = 0, False, False
        self._exclusive: Sandbox | None = None
        self._servers = Pool(self._server)

    def __enter__(self) -> Prover:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop running claims at once, from any thread."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
            if self._exclusive is not None:
                self._exclusive.close()
        self._servers.close()

    def run(self, request: dict[str, Any]) -> Reply:
        """Run a claim. Thread-safe."""
        server = self._servers.get(environment_of(request.get("original", "")))
        with self._gate:
            self._gate.wait_for(lambda: not self._alone)
            self._running += 1
        try:
            return server.run_sync(request)
        finally:
            with self._gate:
                self._running -= 1
                self._gate.notify_all()

    def run_exclusive(self, request: dict[str, Any], memory: int) -> Reply:
        """Run a claim with `memory` bytes while nothing else runs."""
        with self._gate:
            self._gate.wait_for(lambda: not self._alone)
            self._alone = True
            self._gate.wait_for(lambda: not self._running)
        try:
            environment = environment_of(request["original"]) | _PAGES
            with Sandbox(WORKER, 1, self.timeout, memory >> 20, environment=environment) as server:
                with self._gate:
                    if self._closed:
                        raise RuntimeError("the prover was closed")
                    self._exclusive = server
                more = {
                    "limits": [int(memory * _USED), _FLOPS_ALONE],
                    "threads": len(os.sched_getaffinity(0)),
                }
                return server.run_sync(request | more)
        finally:
            with self._gate:
                self._alone, self._exclusive = False, None
                self._gate.notify_all()

    def start(self, source: str) -> None:
        """Start the servers that claims about this source need. Otherwise the first claim does."""
        for environment in ({}, environment_of(source)):
            self._servers.get(environment).start()

    def _server(self, environment: Mapping[str, str]) -> Sandbox:
        return Sandbox(
            WORKER,
            workers=self.workers,
            timeout=self.timeout,
            memory_mb=self.memory_mb,
            environment=environment,
        )


def environment_of(source: str) -> dict[str, str]:
    """The environment of the processes that run a source."""
    return offline_models.environment_for(source, "full")


def prove_folder(folder: Path, prover: Prover) -> Proof:
    """Prove one model, write the result files and set the tree's `verification_status`.

    Raises `OutputError` if it cannot write.
    """
    start = time.monotonic()
    proof = Proof(folder, folder.name)
    try:
        _mark(folder, "NOT_RUN")
        try:
            if links := [path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink()]:
                raise Unreadable(f"{min(links)} is a link: a tree is made of files")
            _forget(folder)
            tree = Tree(folder)
        except Unreadable as error:
            proof.fail("ERROR", [str(error)])
        else:
            _prove(tree, prover, proof)
        _mark(folder, proof.status)
    except OSError as error:
        raise OutputError(f"{error.filename or folder}: {error.strerror}") from None
    proof.seconds = time.monotonic() - start
    return proof


def _prove(tree: Tree, prover: Prover, proof: Proof) -> None:
    prover.start(tree.source)
    claims = [*tree.steps, tree.composition]
    with ThreadPoolExecutor(prover.workers) as pool:
        files = pool.submit(_check_files, tree, prover)
        results = list(pool.map(lambda claim: _result(claim, tree, prover), claims))
        looked = files.result()
    file_faults = level_faults(tree, looked)
    for claim, result in zip(claims, results, strict=True):
        names = SUMMARIES[::2] if claim is tree.composition else RESULTS
        _write(claim.folder / names[0], result["verification"])
        _write(claim.folder / names[1], result["coverage"])
        status = result["verification"]["status"]
        if status != "PASS":
            proof.fail(status, [f"{claim.name}: {line}" for line in result["verification"]["reasons"]])
    if all(result["verification"]["status"] == "PASS" for result in results):
        file_faults += use_faults(tree, results, looked)
    if tree.faults or file_faults:
        proof.fail("FAIL", [*tree.faults, *file_faults])
    verified = [result["verification"] for result in results]
    proof.steps, proof.passed = len(tree.steps), sum(v["status"] == "PASS" for v in verified[:-1])
    proof.composition = verified[-1]["status"]
    proof.coverage = results[-1]["coverage"]["coverage"]["coverage_pct"]
    proof.reduced = any(v["numerical_comparison"].get("reduced") for v in verified)
    steps = [
        {"step": claim.name.rpartition("/")[2], "status": v["status"], "reasons": v["reasons"]}
        for claim, v in zip(tree.steps, verified[:-1], strict=True)
    ]
    _write(
        tree.folder / "verification" / SUMMARIES[1],
        {
            "timestamp": _now(),
            "status": proof.status,
            "total_steps": proof.steps,
            "passed": proof.passed,
            "failed": sum(step["status"] == "FAIL" for step in steps),
            "errors": sum(step["status"] == "ERROR" for step in steps),
            "steps": steps,
            "composition": proof.composition,
            "level_files": {"checked": len(tree.nodes), "faults": file_faults},
            "tree_faults": tree.faults,
            "proven_parts": proven_parts(tree, [v["status"] == "PASS" for v in verified], file_faults),
        },
    )


def _check_files(tree: Tree, prover: Prover) -> dict[str, dict[str, Any]]:
    """What each emitted file does on its own, at full size."""
    codes = {name: tree.texts[name] for name in tree.nodes}
    reply = prover.run({"files": codes, "original": tree.source})
    if reply["kind"] == "ok" and set(reply["result"].get("files", {})) == set(codes):
        return dict(reply["result"]["files"])
    looked = {}  # one file kills the process: find out which
    for name, code in codes.items():
        reply = prover.run({"files": {name: code}, "original": tree.source})
        looked[name] = reply["result"]["files"][name] if reply["kind"] == "ok" else {"error": _why(reply)}
    return looked


# ---------------------------------------------------------------------------------------------------- results


def _result(claim: Claim, tree: Tree, prover: Prover) -> dict[str, Any]:
    """A claim's two result files, and how its children were used."""
    found: dict[str, Any] = {"status": "FAIL", "lines": claim.violations}
    if (
        not claim.violations
    ):  # a file that violates the rules is not run: it could affect the rest of its claim
        request = {
            "original": claim.original,
            "entry_point": tree.metadata.get("model_name"),
            "refactored": claim.files,
            "main": claim.main,
            "weight_map": claim.weight_map,
            "single": claim.single,
            "limits": [int(prover.memory_mb * _USED) << 20, _FLOPS],
        }
        reply = prover.run(request)
        needs, most = reply["result"].get("needs"), _free_memory()
        fits_alone = needs and needs[0] <= most * _USED and needs[1] <= _FLOPS_ALONE
        if fits_alone or reply["kind"] == "out_of_memory":
            reply = prover.run_exclusive(request, most)
        found = reply["result"] if reply["kind"] == "ok" else {"status": "ERROR", "lines": [_why(reply)]}
        found["seconds"] = round(reply["seconds"], 2)
        which = ["inputs", "outputs"] if claim.of_the_node else ["outputs"]
        if "shapes" in found and (wrong := shape_faults(claim.node, found["shapes"], which)):
            found = found | {
                "status": "FAIL",
                "lines": [*found["lines"], *(f"the original: {w}" for w in wrong)],
            }
    return {
        "verification": _verification(claim, found),
        "coverage": _coverage(found.get("operations")),
        "children": found.get("children", {}),
        "varied": found.get("varied", {}),
    }


def _verification(claim: Claim, found: dict[str, Any]) -> dict[str, Any]:
    runtime, parameters = found.get("runtime_violations", []), found.get("parameter_violations", [])
    cheats = bool(claim.violations or runtime or parameters)
    ran = "weight_transfer" in found
    unmapped: dict[str, Any] = {
        "status": "NOT_RUN",
        "mapped_count": 0,
        "unmapped_original": [],
        "unmapped_refactored": [],
    }
    uncompared: dict[str, Any] = {
        "status": "NOT_RUN", "rtol": None, "atol": None, "input_dtype": None, "num_trials": 0,
        "max_diff_across_trials": None, "trials": [],
    }  # fmt: skip
    return {
        "timestamp": _now(),
        "original_file": "original.py",
        "refactored_file": Path(claim.main).name,
        "status": found["status"],
        "anticheat": {
            "status": "FAIL" if cheats else "PASS" if ran else "NOT_RUN",
            "source_violations": claim.violations,
            "parameter_violations": parameters,
            "runtime_violations": runtime,
        },
        "weight_transfer": found.get("weight_transfer", unmapped),
        "numerical_comparison": found.get("numerical_comparison", uncompared),
        "same_operations_and_arguments": found.get("same_operations_and_arguments"),
        "reasons": found["lines"],
        "seconds": found.get("seconds"),
    }


def _coverage(operations: dict[str, Any] | None) -> dict[str, Any]:
    """Compare the original's operations with those inside children, by type."""
    original: dict[str, int] = operations["original"] if operations else {}
    decomposed: dict[str, int] = operations["refactored"] if operations else {}
    details = []
    for kind in sorted({*original, *decomposed}):
        had, has = original.get(kind, 0), decomposed.get(kind, 0)
        status = "extra" if not had else "covered" if has >= had else "partial" if has else "missing"
        details.append({"op_type": kind, "original_count": had, "decomposed_count": has, "status": status})
    total = sum(original.values())
    covered = sum(min(count, decomposed.get(kind, 0)) for kind, count in original.items())
    percent = (100.0 * covered / total if total else 100.0) if operations else None
    status = (
        "ERROR" if percent is None
        else "FULL_COVERAGE" if covered == total
        else "PARTIAL_COVERAGE" if percent >= _PARTIAL
        else "LOW_COVERAGE"
    )  # fmt: skip
    return {
        "status": status,
        "extraction_method": operations["method"] if operations else None,
        "coverage": {
            "total_original_ops": total,
            "total_decomposed_ops": sum(decomposed.values()),
            "covered_op_count": covered,
            "coverage_pct": percent,
            "missing_op_types": [d["op_type"] for d in details if d["status"] in ("missing", "partial")],
            "extra_op_types": [d["op_type"] for d in details if d["status"] == "extra"],
            "op_details": details,
        },
    }


def _free_memory() -> int:
    """The bytes that one process may use, leaving some for everything else."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    limit = Path("/sys/fs/cgroup/memory.max")
    said = limit.read_text(encoding="ascii").strip() if limit.exists() else "max"
    return int(0.9 * min(free, int(said) if said.isdigit() else free))


def _why(reply: Reply) -> str:
    if reply["kind"] == "error":
        return f"{reply['type']}: {reply['message']}"
    return f"{reply['kind'].replace('_', ' ')}: {reply['message']}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, value: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def _forget(folder: Path) -> None:
    """Remove old results."""
    for step in (folder / "steps").glob("*"):
        for name in RESULTS:
            (step / name).unlink(missing_ok=True)
    for name in SUMMARIES:
        (folder / "verification" / name).unlink(missing_ok=True)


def _mark(folder: Path, status: str) -> None:
    path = folder / TREE
    try:
        tree = json.loads(path.read_bytes())
        tree["metadata"]["verification_status"] = status
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # not a tree: reading it reports the error
    _write(path, tree)
