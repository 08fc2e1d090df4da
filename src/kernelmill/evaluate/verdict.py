"""The verdict: the evaluator's record of one candidate, from which everything else is computed.

Rewards, feedback and summaries are functions of this record, so they can be recomputed without running
anything. Its JSON form is versioned by `schema`; a reader accepts any 1.x.

A verdict has one of four values:

    correct        positive evidence that it computes the reference's function, in Triton, at `tier`
    incorrect      it does not: wrong, crashes, hangs, does not compile
    hack           it only appears to: there is evidence of deceit, whatever the numbers
    inconclusive   unknown: it cannot be judged here, because of the candidate or the reference (UNSUPPORTED),
                   or the evaluator failed (INFRA_ERROR), and a retry may succeed
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

SCHEMA = "1.1"

Status = Literal[
    "PASSED",
    "PARSE_ERROR",  # not Python
    "FORMAT_ERROR",  # no candidate: no answer, no class, no kernel
    "COMPILE_ERROR",  # Triton rejects a kernel
    "OUT_OF_RESOURCES",  # compiles, but exceeds the target's shared memory or registers
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
SIZE_DEPENDENT_STATUSES: tuple[Status, ...] = (
    "RUNTIME_ERROR",
    "TIMEOUT",
    "OOM",
    "INCORRECT_SHAPE",
    "INCORRECT_DTYPE",
    "INCORRECT_NUMERICAL",
    "NONFINITE",
)
"""Statuses that come from running a candidate at one size, and may differ at another."""
BAD_REFERENCE = "the reference cannot be used"
"""Prefix of the error if the reference makes judging impossible.

The status is UNSUPPORTED if that is permanent.
"""
SLICE = 4
"""The most neighbouring values of a wrong output that a verdict reports."""
VerdictValue = Literal["correct", "incorrect", "hack", "inconclusive"]
Tier = Literal["static", "interpreter", "gpu", "gpu_timed"]
Severity = Literal["hard", "soft", "info"]
Result = Literal["pass", "fail", "skip"]
DropIn = Literal["strict", "by_order", "seed_only", "none"]

TIERS: tuple[Tier, ...] = get_args(Tier)
_VALUES: dict[Status, VerdictValue] = {
    "PASSED": "correct",
    "HACK": "hack",
    "UNSUPPORTED": "inconclusive",
    "INFRA_ERROR": "inconclusive",
}


def value_of(status: Status) -> VerdictValue:
    return _VALUES.get(status, "incorrect")


ON_GPU = "gpu:"
"""Prefix of the names of checks that ran on the GPU."""


class CheckName(NamedTuple):
    kind: str
    """What kind of check it is: `seed`, `ablation`."""
    which: str
    """Which one of its kind, if the name has a part after the colon."""
    on_gpu: bool


def parse_check_name(name: str) -> CheckName:
    """Split a check's name: `gpu:distribution:x8` is the check `distribution` of `x8`, on the GPU.

    A number at the end of the kind is dropped: `seed_0` is a `seed`.
    """
    kind, _, which = name.removeprefix(ON_GPU).partition(":")
    return CheckName(re.sub(r"_\d+$", "", kind), which, name.startswith(ON_GPU))


@dataclass
class Check:
    """One check that was run. `detail` is the result in one line; `seed` replays it."""

    name: str
    result: Result
    detail: str = ""
    seed: int | None = None
    relL2_eps: float | None = None
    elem_eps: float | None = None
    bound: list[float] | None = None
    """The bounds for `relL2_eps` and `elem_eps`."""
    worst: dict[str, Any] | None = None
    """The element with the largest error: `output`, `index`, `expected`, `got`."""
    differs: dict[str, Any] | None = None
    """Where a wrong output is wrong.

    `inputs` and `output` (types and shapes), `wrong`, `of`, `max_abs`, `where`; `at`, `expected` and `got`
    are a few neighbouring values.
    """
    ms: float | None = None


@dataclass
class Flag:
    """A finding about the candidate.

    Hard: proof of deceit. Soft: suspicious, or of lower quality. Info: a fact.

    `code` begins with the number of the pattern in docs/hacks.md: `A3.identity_copy`.
    """

    code: str
    severity: Severity
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass
class Grade:
    """The quality of a correct candidate. None: not measured."""

    robust: bool | None = None
    """All stress probes pass: wide ranges, odd sizes, non-contiguous inputs."""
    drop_in: DropIn | None = None
    """How the candidate got the reference's weights: by state_dict, by order and shape, or by seed only."""
    coverage: float | None = None
    """The share of the work that the candidate's own kernels do: 1 - torch_share, or measured on a GPU."""
    torch_share: float | None = None
    deterministic: bool | None = None
    shape_specialised: bool | None = None
    nonfinite: bool | None = None
    """NaN and infinity in the inputs show in the outputs wherever the reference shows them."""


@dataclass
class Perf:
    """Times are in microseconds; `ci` and `speedup_lo`, `speedup_hi` are 95 % intervals."""

    device: str
    regime: Literal["latency", "device"]
    median_us: float
    ci: list[float]
    n: int
    baselines: dict[str, float]
    """Times by name (eager, compile, compile_max), in the same regime."""
    speedup: float
    """Against the fastest baseline."""
    speedup_lo: float
    speedup_hi: float
    latency_us: float | None = None
    device_us: float | None = None
    baselines_latency: dict[str, float] = field(default_factory=dict)
    baselines_device: dict[str, float] = field(default_factory=dict)
    wall_us: float | None = None
    """Measured with the judge's own clock, outside the candidate's process."""
    program_us: float | None = None
    """The kernels' own time when the recorded program runs, in a process without the candidate."""
    own_us: float | None = None
    """The same in the candidate's process, measured at the same time."""
    mean_us: float | None = None
    std_us: float | None = None
    min_us: float | None = None
    max_us: float | None = None
    roofline_frac: float | None = None
    """Fraction of the memory bandwidth, if all of the task's bytes are moved once."""
    clock_mhz: float | None = None
    compile_s: float | None = None
    """Seconds until all kernels of a call were compiled, without autotuning."""
    notes: list[str] = field(default_factory=list)


@dataclass
class Verdict:
    id: str
    status: Status
    tier: Tier
    """The last tier that ran: `correct` holds at this tier."""
    verdict: VerdictValue = "inconclusive"
    schema: str = SCHEMA
    task: dict[str, Any] = field(default_factory=dict)
    candidate: dict[str, Any] = field(default_factory=dict)
    grade: Grade = field(default_factory=Grade)
    checks: list[Check] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    compile: dict[str, Any] = field(default_factory=dict)
    """`targets`: the real compiler's result for the launched kernels, by target (`sm_90`)."""
    perf: Perf | None = None
    rewards: dict[str, float | None] = field(default_factory=dict)
    kb_compat: dict[str, bool] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    """The error message of the compiler or of the run, if there was one."""
    feedback: str = ""

    def __post_init__(self) -> None:
        self.verdict = value_of(self.status)

    def set_status(self, status: Status) -> None:
        self.status, self.verdict = status, value_of(status)

    def compiler_said(self) -> list[list[dict[str, Any]]]:
        """The real compiler's result for each kernel, by target. Malformed entries are left out."""
        targets = self.compile.get("targets")
        found = targets.values() if isinstance(targets, dict) else ()
        kernels = [target.get("kernels") for target in found if isinstance(target, dict)]
        return [
            [one for one in each.values() if isinstance(one, dict)]
            for each in kernels
            if isinstance(each, dict)
        ]

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON values. NaN and infinity become null, except in `perf`, where they are a bug.

        In a check, null means "not finite", and fields that were not measured are left out.
        """
        row = dataclasses.asdict(self)
        first = ("schema", "id", "task", "candidate", "status", "verdict", "tier")
        for check in row["checks"]:
            if not all(math.isfinite(limit) for limit in check["bound"] or ()):
                check["bound"] = None  # an infinite bound bounds nothing
        row["checks"] = [{k: v for k, v in check.items() if v is not None} for check in row["checks"]]
        ordered = {name: row[name] for name in first} | {k: v for k, v in row.items() if k not in first}
        return {name: value if name == "perf" else _plain(value) for name, value in ordered.items()}

    def to_json(self) -> str:
        """The verdict as one line of JSON that can be encoded as UTF-8."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Verdict:
        """Read a stored record.

        Fields that a later 1.x added are ignored. Raise `ValueError` if it is malformed.
        """
        if not isinstance(row, dict):
            raise ValueError(f"a verdict is an object, not {type(row).__name__}")
        if str(row.get("schema", "")).split(".")[0] != SCHEMA.split(".")[0]:
            raise ValueError(
                f"a verdict of schema {row.get('schema')!r}; this reads {SCHEMA.split('.')[0]}.x"
            )
        verdict: Verdict = _made(cls, row, "")
        if row.get("verdict", verdict.verdict) != verdict.verdict:
            raise ValueError(f"verdict {row['verdict']!r} contradicts status {verdict.status!r}")
        return verdict


def _plain(value: Any) -> Any:
    """Replace NaN and infinity (a wrong candidate's error may be either) by None; escape lone surrogates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@functools.cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _made(kind: Any, row: dict[str, Any], where: str) -> Any:
    """Build one of the dataclasses above from its JSON form."""
    hints, values = _hints(kind), {}
    for f in dataclasses.fields(kind):
        if f.name in row:
            values[f.name] = _read(row[f.name], hints[f.name], f"{where}{f.name}")
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ValueError(f"no {where}{f.name}")
    return kind(**values)


def _read(value: Any, hint: Any, where: str) -> Any:
    """Check a value against its type and return it. Supports only the types used in this file."""
    if hint is Any or (hint in (str, bool, int) and type(value) is hint):
        return value
    kind, inner = _parts(hint)
    if kind is Literal and isinstance(value, str) and value in inner:
        return value
    if kind in (types.UnionType, Union):
        if value is None and types.NoneType in inner:
            return None
        (other,) = [one for one in inner if one is not types.NoneType]
        return _read(value, other, where)
    if kind is list and isinstance(value, list):
        return [_read(item, inner[0], f"{where}[{i}]") for i, item in enumerate(value)]
    if kind is dict and isinstance(value, dict):
        return {name: _read(item, inner[1], f"{where}.{name}") for name, item in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _made(hint, value, f"{where}.")
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{where} is {value}, which is no number")
        return value
    expected = f"one of {', '.join(inner)}" if kind is Literal else getattr(hint, "__name__", str(hint))
    raise ValueError(f"{where} is {str(value)[:60]!r}: expected {expected}")
