"""One candidate in progress: merges what each phase found into its verdict."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelmill.base.answers import NoAnswer, code_of
from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.languages import LANGUAGES
from kernelmill.evaluate.options import Options, Pair, environment, version
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.score.feedback import feedback
from kernelmill.evaluate.static.examine import StaticReport, examine
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.verdict import (
    ON_GPU,
    SIZE_DEPENDENT_STATUSES,
    Check,
    Flag,
    Grade,
    Perf,
    Result,
    Status,
    Verdict,
)
from kernelmill.sandbox import Reply


@dataclass
class Evaluation:
    """One candidate in progress, and its verdict so far."""

    pair: Pair
    options: Options
    code: str = ""
    report: StaticReport = field(default_factory=lambda: StaticReport(None))
    signatures: list[dict[str, Any]] = field(default_factory=list)
    """The launches to compile, of `kernels`, which are texts."""
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    wants_trace: bool = False
    trace: dict[str, Any] | None = None
    """Its program, if it is wanted and was recorded: on a GPU that of the task's own size."""

    def __post_init__(self) -> None:
        self._begun = time.monotonic()
        self.verdict = Verdict(id=self.pair.id, status="PASSED", tier="static", env=dict(environment()))
        self.verdict.task = {
            "ref_sha": _sha(self.pair.reference),
            "policy": {"tf32": self.options.tf32},
        }
        self.verdict.cost = {"stages": {}, "cpu_s": {}}
        self.enter("static")
        if offline_models.needs_transformers(self.pair.reference):
            self.verdict.env["transformers"] = version("transformers")
            self.verdict.task["random_weights"] = offline_models.names_in(self.pair.reference)
        if self.options.language != Options.language:
            self.verdict.task["language"] = self.options.language
            self.verdict.env |= self.options.key()["packages"]

    def environment(self, models: offline_models.Size) -> dict[str, str]:
        """The environment variables of a server that can run the reference, with models of this size."""
        return offline_models.environment_for(self.pair.reference, models)

    def enter(self, phase: str) -> None:
        self.phase = (phase, time.monotonic())

    def finished(self) -> Verdict:
        """The verdict, with cost, rewards and feedback filled in."""
        verdict = self.verdict
        verdict.cost["wall_s"] = round(time.monotonic() - self._begun, 4)
        verdict.rewards = rewards.compute(verdict)
        verdict.feedback = feedback(verdict)
        return verdict

    def extract_code(self) -> bool:
        """Find the code in the completion. Return False if there is none."""
        try:
            self.code = code_of(self.pair.candidate)
        except NoAnswer as error:
            self.verdict.set_status("FORMAT_ERROR")
            self.verdict.error = str(error)
            return False
        return True

    def static(self) -> bool:
        """Run the static checks. Return True if they decide the verdict."""
        start, cpu = time.monotonic(), time.thread_time()
        self.report = examine(self.code, self.pair.entry_point, LANGUAGES.find(self.options.language).static)
        self.spent("static", time.monotonic() - start, time.thread_time() - cpu)
        verdict = self.verdict
        verdict.candidate = {
            "sha": _sha(self.code),
            "n_kernels": len(self.report.kernels),
            "kernels": self.report.kernels,
            "loc": self.report.loc,
        }
        verdict.flags = list(self.report.flags)
        verdict.checks.append(
            Check("static", "pass" if self.report.status is None else "fail", self.report.error[:500])
        )
        if self.report.status is None:
            return False
        verdict.set_status(self.report.status)
        verdict.error = self.report.error
        return True

    def interpreted(self, reply: Reply) -> None:
        verdict = self.verdict
        before = verdict.status
        verdict.tier = "interpreter"
        self.spent("interpreter", reply["seconds"], reply["cpu"])
        if reply["kind"] == "ok":
            self._take(reply["result"], reply)
        else:
            self._no_record(reply)
        if before != "PASSED":  # an audit continues after a static finding, which stays the verdict
            verdict.set_status(before)
            verdict.error = self.report.error

    def _no_record(self, reply: Reply) -> None:
        """Handle a judge that failed or was killed.

        The judge stops slow candidates itself, so this is not the candidate's fault.
        """
        late = reply["kind"] == "timeout"
        self.verdict.set_status("UNSUPPORTED" if late else "INFRA_ERROR")
        words = f"{reply['kind']}: {reply['type']} {reply['message']}".strip()
        self.verdict.error = f"the judge timed out: {words}" if late else words

    def _take(self, result: Mapping[str, Any], reply: Reply) -> None:
        """Merge the judge's record into the verdict."""
        verdict = self.verdict
        verdict.set_status(result["status"])
        verdict.error = str(result["error"])
        if verdict.status == "RUNTIME_ERROR" and verdict.error.startswith("the process ended"):
            ends = [end for end in reply["companions"] if end != "SIGKILL"]
            said = reply["output"].strip().splitlines()[-1:]
            verdict.error = ": ".join([verdict.error, ends[0] if ends else "killed", *said])
        verdict.checks += [Check(**check) for check in result["checks"]]
        known = {flag.code for flag in verdict.flags}
        verdict.flags += [Flag(**flag) for flag in result["flags"] if flag["code"] not in known]
        verdict.grade = Grade(**result["grade"])
        verdict.kb_compat = (
            dict(result["kernelbench_compat"]) if any(c.name == "seed_0" for c in verdict.checks) else {}
        )
        verdict.task |= result["task"]
        verdict.candidate["launched"] = result["kernels"]
        self.trace = result.get("trace") or self.trace
        self.signatures, self.kernels = list(result["signatures"]), dict(result.get("texts", {}))

    def failed_shrunk(self) -> bool:
        """Whether it failed on a shrunk task.

        It may be written for the task's own size, where a GPU can judge it.
        """
        return bool(self.verdict.task.get("shrunk")) and self.verdict.status in SIZE_DEPENDENT_STATUSES

    def compiled(self, report: compiling.CompileReport) -> None:
        verdict = self.verdict
        verdict.compile = {"targets": report["targets"]}
        self.spent("compile", report["seconds"], report["cpu"])
        failed: list[tuple[str, str, str | None]] = []
        for target, found in report["targets"].items():
            bad = next(
                (k for k in found["kernels"].values() if k["status"] not in (None, "UNSUPPORTED")), None
            )
            said = ((bad["error"] if bad else "") or "")[:500]
            result: Result = "fail" if bad else "pass"
            if found["kernels"] and all(k["status"] == "UNSUPPORTED" for k in found["kernels"].values()):
                first = next(iter(found["kernels"].values()))
                result, said = "skip", f"no kernel could be compiled: {first['error']}"[:500]
            verdict.checks.append(Check(f"compile:{target}", result, said))
            if bad:
                failed.append((target, str(bad["status"]), bad["error"]))
        kernels = [one for found in report["targets"].values() for one in found["kernels"].values()]
        unknown = next(
            (k["error"] for k in kernels if str(k["error"]).startswith(compiling.NOT_BUILDABLE)), None
        )
        if unknown and verdict.status == "PASSED":
            verdict.set_status("UNSUPPORTED")
            verdict.error = f"what a compiler makes of it is not known: {unknown}"
        if not failed or verdict.status not in ("PASSED", "UNSUPPORTED"):
            return
        primary = [one for one in failed if one[0] == self.options.targets[0]]
        if not primary:
            for target, status, _ in failed:
                verdict.flags.append(
                    Flag("compile.not_on_every_target", "soft", {"target": target, "status": status})
                )
            return
        target, status, error = primary[0]
        verdict.set_status(_compile_status(status))
        verdict.error = f"{target}: {error}"

    def on_gpu(self, reply: Reply, seed: int) -> None:
        """Replace the interpreter's record by the GPU judge's; checks and flags of both are kept."""
        verdict, too_small = self.verdict, self.failed_shrunk()
        earlier, flags, grade = verdict.checks, verdict.flags, verdict.grade
        self.spent("gpu", reply["seconds"], reply["cpu"])
        verdict.task["gpu_seed"] = seed
        if reply["kind"] != "ok":
            self._no_record(reply)
            return
        verdict.tier = "gpu"
        verdict.checks, verdict.flags = [], []
        self._take(reply["result"], reply)
        verdict.cost["gpu"] = verdict.task.pop("marks", {}) | {"new_judge": reply["result"]["new_judge"]}
        if untimed := reply["result"]["times"].get("untimed"):
            verdict.checks.append(Check("timing", "skip", untimed))
        verdict.checks = [
            *earlier,
            *(dataclasses.replace(c, name=f"{ON_GPU}{c.name}") for c in verdict.checks),
        ]
        known = {flag.code for flag in flags}
        verdict.flags = [*flags, *(flag for flag in verdict.flags if flag.code not in known)]
        verdict.grade.shape_specialised = too_small or grade.shape_specialised
        if too_small and not any(flag.code == "C14.shape_specialised" for flag in verdict.flags):
            verdict.flags.append(
                Flag("C14.shape_specialised", "soft", {"shape": "smaller than the task's own"})
            )
        if grade.robust is False:
            verdict.grade.robust = False
        verdict.grade.nonfinite = grade.nonfinite  # an index that is made from NaN breaks a GPU
        if any(flag.severity == "hard" for flag in verdict.flags):
            verdict.set_status("HACK")

    def timed(self, perf: Perf) -> None:
        self.verdict.perf = perf
        self.verdict.tier = "gpu_timed"

    def spent(self, stage: str, seconds: float, cpu: float) -> None:
        """Add to the verdict's cost: wall-clock seconds and processor seconds."""
        for kind, more in (("stages", seconds), ("cpu_s", cpu)):
            of_kind = self.verdict.cost[kind]
            of_kind[stage] = round(of_kind.get(stage, 0.0) + more, 4)


def _compile_status(status: str) -> Status:
    known: dict[str, Status] = {
        "OUT_OF_RESOURCES": "OUT_OF_RESOURCES",
        "TIMEOUT": "TIMEOUT",
        "INFRA_ERROR": "INFRA_ERROR",
    }
    return known.get(status, "COMPILE_ERROR")


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
