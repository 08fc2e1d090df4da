"""What the evaluator says of one candidate: a record from which everything else is computed.

Rewards, feedback and summaries are functions of this record, so they can be computed again without running
anything. Its JSON form is versioned by `schema`; a reader takes any 1.x.

Four values of truth, and only these are compared:

    correct        positive evidence that it computes the reference's function, in Triton, at `tier`
    incorrect      it does not: wrong, crashes, hangs, does not compile
    hack           it only looks as if it did: evidence that deceives, whatever the numbers
    inconclusive   nobody knows: what cannot be run here (UNSUPPORTED), or our own trouble (INFRA_ERROR)
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

SCHEMA = "1.0"

Status = Literal[
    "PASSED",
    "PARSE_ERROR",  # not Python
    "FORMAT_ERROR",  # Python, but no candidate: no answer, no class, no kernel
    "COMPILE_ERROR",  # Triton refuses a kernel
    "OUT_OF_RESOURCES",  # compiles, and fits no device asked for: shared memory, registers
    "RUNTIME_ERROR",
    "TIMEOUT",
    "OOM",
    "INCORRECT_SHAPE",  # or another number of outputs
    "INCORRECT_DTYPE",  # or another type, device or layout
    "INCORRECT_NUMERICAL",
    "NONFINITE",  # NaN or infinity where the reference has none, or the other way round
    "HACK",
    "UNSUPPORTED",
    "INFRA_ERROR",
]
Truth = Literal["correct", "incorrect", "hack", "inconclusive"]
Tier = Literal["static", "interpreter", "gpu", "gpu_timed"]
Severity = Literal["hard", "soft", "info"]
Result = Literal["pass", "fail", "skip", "unsupported"]
DropIn = Literal["strict", "by_order", "seed_only", "none"]

TIERS: tuple[Tier, ...] = get_args(Tier)
_TRUTH: dict[Status, Truth] = {
    "PASSED": "correct",
    "HACK": "hack",
    "UNSUPPORTED": "inconclusive",
    "INFRA_ERROR": "inconclusive",
}


def truth_of(status: Status) -> Truth:
    return _TRUTH.get(status, "incorrect")


@dataclass
class Check:
    """One thing that was tried. `detail` says in one line what was found; `seed` lets it be tried again."""

    name: str
    result: Result
    detail: str = ""
    seed: int | None = None
    relL2_eps: float | None = None
    elem_eps: float | None = None
    bound: list[float] | None = None
    """What `relL2_eps` and `elem_eps` were allowed to be."""
    ms: float | None = None


@dataclass
class Flag:
    """Something to know about the candidate. Hard: proof of deceit. Soft: suspicious, or worth less. Info: plain fact.

    `code` begins with the number of the pattern in docs/hacks.md: `A3.identity_copy`.
    """

    code: str
    severity: Severity
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass
class Grade:
    """How good a correct candidate is. None: not measured."""

    robust: bool | None = None
    """All stress probes hold: wide ranges, odd sizes, non-contiguous inputs."""
    drop_in: DropIn | None = None
    """How the reference's weights got in: its state_dict as it is, by order and shape, or by the same seed only."""
    coverage: float | None = None
    """The share of the work that the candidate's own kernels do: 1 - torch_share, or by time where a GPU was profiled."""
    torch_share: float | None = None
    deterministic: bool | None = None
    shape_specialised: bool | None = None


@dataclass
class Perf:
    """Times are in microseconds; `ci` and `speedup_lo`, `speedup_hi` are 95 % intervals."""

    device: str
    regime: Literal["latency", "device"]
    median_us: float
    ci: list[float]
    n: int
    baselines: dict[str, float]
    """By name: eager, compile, compile_max; of the same regime."""
    speedup: float
    """Against the fastest baseline."""
    speedup_lo: float
    speedup_hi: float
    latency_us: float | None = None
    device_us: float | None = None
    baselines_latency: dict[str, float] = field(default_factory=dict)
    baselines_device: dict[str, float] = field(default_factory=dict)
    wall_us: float | None = None
    """By the judge's own clock, from outside the candidate's process."""
    roofline_frac: float | None = None
    clock_mhz: float | None = None
    compile_s: float | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    id: str
    status: Status
    tier: Tier
    """How far the candidate was taken: `correct` holds at this tier."""
    verdict: Truth = "inconclusive"
    schema: str = SCHEMA
    task: dict[str, Any] = field(default_factory=dict)
    candidate: dict[str, Any] = field(default_factory=dict)
    grade: Grade = field(default_factory=Grade)
    checks: list[Check] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    compile: dict[str, Any] = field(default_factory=dict)
    """`targets`: by sm_80 and so on, what the real compiler said of the launched kernels."""
    perf: Perf | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    kb_compat: dict[str, bool] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    """The compiler's or the run-time's own words, where there was an error."""
    feedback: str = ""

    def __post_init__(self) -> None:
        self.verdict = truth_of(self.status)

    def settle(self, status: Status) -> None:
        self.status, self.verdict = status, truth_of(status)

    def to_dict(self) -> dict[str, Any]:
        row = dataclasses.asdict(self)
        first = ("schema", "id", "task", "candidate", "status", "verdict", "tier")
        row["checks"] = [{k: v for k, v in check.items() if v is not None} for check in row["checks"]]
        return {name: row[name] for name in first} | {k: v for k, v in row.items() if k not in first}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Verdict:
        """Read a stored record; what a later 1.x added is left out."""
        if str(row.get("schema", "")).split(".")[0] != SCHEMA.split(".")[0]:
            raise ValueError(f"a verdict of schema {row.get('schema')!r}; this reads {SCHEMA.split('.')[0]}.x")
        known = {f.name for f in dataclasses.fields(cls)}
        values = {name: value for name, value in row.items() if name in known}
        values["grade"] = _made(Grade, row.get("grade") or {})
        values["checks"] = [_made(Check, check) for check in row.get("checks", ())]
        values["flags"] = [_made(Flag, flag) for flag in row.get("flags", ())]
        values["perf"] = _made(Perf, row["perf"]) if row.get("perf") else None
        return cls(**values)


def _made(kind: type[Any], row: dict[str, Any]) -> Any:
    known = {f.name for f in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in row.items() if name in known})
