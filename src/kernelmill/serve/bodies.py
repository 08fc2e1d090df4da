"""Request bodies of the endpoints, and the response of each for a verdict.

`/eval` is a contract with existing trainers. It accepts unknown fields. Fields that request another way of
judging (seeds, trials, a device) have no effect; `metadata.not_used` names them. Our own endpoints reject
unknown fields, so that a misspelt option is not silently ignored.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kernelmill.errors import ConfigError
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.score import rewards
from kernelmill.evaluate.verdict import Status, Tier, Verdict
from kernelmill.rl.client import MAX_CODE
from kernelmill.serve.service import hardware

Code = Annotated[str, Field(max_length=MAX_CODE)]
Name = Annotated[str, Field(max_length=200)]

_KERNELBENCH_KEYS: dict[Status, str] = {
    "PARSE_ERROR": "compilation_error",
    "FORMAT_ERROR": "compilation_error",
    "COMPILE_ERROR": "compilation_error",
    "OUT_OF_RESOURCES": "compilation_error",
    "RUNTIME_ERROR": "runtime_error",
    "TIMEOUT": "runtime_error",
    "OOM": "runtime_error",
    "INCORRECT_SHAPE": "correctness_issue",
    "INCORRECT_DTYPE": "correctness_issue",
    "INCORRECT_NUMERICAL": "correctness_issue",
    "NONFINITE": "correctness_issue",
}
"""KernelBench's names for each kind of failure."""


class EvaluateRequest(BaseModel):
    """One pair, for `/evaluate`."""

    model_config = ConfigDict(extra="forbid")

    id: Name | int | None = Field(
        default=None, description="stands in the answer; else a hash of the content"
    )
    reference: Code = Field(description="the PyTorch module: Model, get_inputs(), get_init_inputs()")
    candidate: Code = Field(description="code with a class ModelNew, or a model's completion that holds it")
    entry_point: Name | None = Field(default=None, description="the reference's class where it is not Model")
    audit: bool = Field(default=False, description="run every check, also after the first failure")
    tf32: bool = Field(default=False, description="allow TF32 in float32 matrix products")
    reward: Name | None = Field(default=None, description="the name of the reward")
    timeout: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="seconds for one candidate in one tier, at most the service's own",
    )

    @field_validator("reward")
    @classmethod
    def _is_known(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                rewards.find(name)
            except ConfigError as error:
                raise ValueError(str(error)) from None
        return name

    def options(self, base: Options) -> Options:
        timeout = base.timeout if self.timeout is None else self.timeout
        return dataclasses.replace(
            base,
            audit=self.audit,
            tf32=self.tf32,
            timeout=timeout,
            call_timeout=min(base.call_timeout, timeout),
        )

    def pair(self, options: Options) -> Pair:
        """Return the pair. Without an id, its content hash is the id."""
        pair = Pair("", self.reference, self.candidate, self.entry_point)
        return dataclasses.replace(pair, id=pair.key(options) if self.id is None else str(self.id))


class BatchRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pairs: list[EvaluateRequest] = Field(
        min_length=1, description="each as for /evaluate; all are taken or none"
    )


class KernelBenchRequest(BaseModel):
    """`/eval`: slime's and TritonForge's request."""

    model_config = ConfigDict(extra="allow")

    original_model_src: Code = Field(description="the PyTorch module")
    custom_model_src: Code = Field(description="the candidate")
    seed_num: int | None = 42
    num_correct_trials: int | None = 5
    num_perf_trials: int | None = 100
    verbose: bool | None = False
    measure_performance: bool | None = None
    preferred_device: str | int | None = None
    backend: str | None = None
    entry_point: Name | None = None
    """Our extension: the reference's class if it is not `Model`."""

    def options(self, base: Options, reached: Tier | None) -> Options:
        """Return the options, without timing if the request asks for none."""
        untimed = self.measure_performance is False and reached == "gpu_timed"
        return dataclasses.replace(base, tier="gpu") if untimed else base

    def pair(self, options: Options) -> Pair:
        pair = Pair("", self.original_model_src, self.custom_model_src, self.entry_point)
        return dataclasses.replace(pair, id=pair.key(options))

    def not_used(self) -> list[str]:
        used = {"original_model_src", "custom_model_src", "measure_performance", "entry_point"}
        return sorted(self.model_fields_set - used)


def evaluate_answer(verdict: Verdict, id: str, reward: str) -> dict[str, Any]:
    """Return the whole verdict under the caller's own id, and the reward."""
    row = verdict.to_dict() | {"id": id}
    return row | {"reward": rewards.compute(verdict, [reward])[reward]}


def eval_answer(verdict: Verdict, body: KernelBenchRequest, id: str, reward: str) -> dict[str, Any]:
    """Return KernelBench's record. Values not measured are -1.0 and {}, and `metadata` says why."""
    row = evaluate_answer(verdict, id, reward)
    runtime, stats, note = _runtime(verdict, body)
    metadata: dict[str, Any] = {
        "status": verdict.status,
        "verdict": verdict.verdict,
        "tier": verdict.tier,
        "hardware": hardware(verdict),
        "device": "cuda" if verdict.tier.startswith("gpu") else "cpu",
        "flags": [flag.code for flag in verdict.flags],
        "feedback": verdict.feedback,
        "not_used": body.not_used(),
    }
    if note:
        metadata["runtime"] = note
    if verdict.status in _KERNELBENCH_KEYS:
        metadata[_KERNELBENCH_KEYS[verdict.status]] = verdict.feedback
    return {
        "compiled": rewards.compiled(verdict),
        "correctness": verdict.verdict == "correct",
        "metadata": metadata,
        "runtime": runtime,
        "runtime_stats": stats,
        "reward": row.pop("reward"),
        "verdict": row,
    }


def _runtime(verdict: Verdict, body: KernelBenchRequest) -> tuple[float, dict[str, Any], str]:
    perf = verdict.perf
    if verdict.verdict != "correct":
        return -1.0, {}, "not measured: only a correct candidate is timed"
    if body.measure_performance is False:
        return -1.0, {}, "not measured: measure_performance is false"
    if perf is None:
        return -1.0, {}, "not measured: no GPU was used"
    spread = {"mean": perf.mean_us, "std": perf.std_us, "min": perf.min_us, "max": perf.max_us}
    stats: dict[str, Any] = {name: us / 1000 for name, us in spread.items() if us is not None} | {
        "median": perf.median_us / 1000,
        "ci": [limit / 1000 for limit in perf.ci],
        "num_trials": perf.n,
        "hardware": perf.device,
        "device": "cuda",
    }
    return perf.median_us / 1000, stats, ""
