"""Verdicts to test with: one of each kind by hand, and any by hypothesis."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from kernelmill.evaluate.verdict import (
    Check,
    DropIn,
    Flag,
    Grade,
    Perf,
    Result,
    Severity,
    Status,
    Tier,
    Verdict,
)

STATUSES: tuple[Status, ...] = get_args(Status)
CHECK_NAMES = [
    "static",
    "import",
    "init",
    "seed_0",
    "seed_1",
    "seed_7",
    "launches",
    "ablation",
    "ablation:softmax_kernel",
    "oob",
    "races",
    "static_buffer",
    "overwrite",
    "overwrite_lines",
    "distribution:zero_mean",
    "distribution:times_100",
    "drift",
    "weights",
    "mode:eval",
    "scalars",
    "other_inputs",
    "gpu:seed_0",
    "gpu:distribution:x8",
    "gpu:init",
    "coverage",
    "odd_shape",
    "noncontiguous",
    "autotune:3",
    "compile:sm_90",
    "graph_replay",
    "timing",
    "digest",
    "profiler",
    "physics",
]

_numbers = st.floats(allow_nan=False, allow_infinity=False)
_share = st.floats(0, 1)
_text = st.text(max_size=30)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | _numbers | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_objects: st.SearchStrategy[dict[str, Any]] = st.dictionaries(_text, _json, max_size=3)

_COMPILED: tuple[Status | None, ...] = (None, "COMPILE_ERROR", "OUT_OF_RESOURCES", "TIMEOUT", "UNSUPPORTED")


def target(*said: Status | None) -> dict[str, Any]:
    """What the compiler said of a target's kernels."""
    kernels = {
        f"kernel_{i}": {
            "shared": 0,
            "regs": 32,
            "spills": 0,
            "s": 0.1,
            "error": status and f"{status}, it said",
            "status": status,
        }
        for i, status in enumerate(said)
    }
    return {"ok": not any(said), "kernels": kernels}


checks = st.builds(
    Check,
    name=st.sampled_from(CHECK_NAMES) | _text,
    result=st.sampled_from(get_args(Result)),
    detail=_text,
    seed=st.none() | st.integers(0, 2**63),
    relL2_eps=st.none() | _numbers,
    elem_eps=st.none() | _numbers,
    bound=st.none() | st.lists(_numbers, min_size=2, max_size=2),
    worst=st.none()
    | st.fixed_dictionaries(
        {"output": st.just(0), "index": st.just([3, 7]), "expected": _numbers, "got": _numbers}
    ),
    ms=st.none() | _numbers,
)
flags = st.builds(
    Flag,
    code=st.sampled_from(["A1.never_launched", "B11.static_buffer", "C10.fragile", "Z9.new"]) | _text,
    severity=st.sampled_from(get_args(Severity)),
    evidence=_objects,
)
grades = st.builds(
    Grade,
    robust=st.none() | st.booleans(),
    drop_in=st.none() | st.sampled_from(get_args(DropIn)),
    coverage=st.none() | _share,
    torch_share=st.none() | _share,
    deterministic=st.none() | st.booleans(),
    shape_specialised=st.none() | st.booleans(),
)


@st.composite
def perfs(draw: st.DrawFn, speedup: float | None = None) -> Perf:
    ratio = draw(st.floats(0, 1e6)) if speedup is None else speedup
    return Perf(
        device="a GPU",
        regime=draw(st.sampled_from(["latency", "device"])),
        median_us=draw(st.floats(0.1, 1e6)),
        ci=[1.0, 2.0],
        n=draw(st.integers(1, 200)),
        baselines=draw(
            st.dictionaries(st.sampled_from(["eager", "compile", "compile_max"]), st.floats(0.1, 1e6))
        ),
        speedup=ratio,
        speedup_lo=ratio * draw(_share),
        speedup_hi=ratio * 1.1,
        roofline_frac=draw(st.none() | st.floats(0, 2)),
    )


def verdicts(status: st.SearchStrategy[Status] | None = None) -> st.SearchStrategy[Verdict]:
    return st.builds(
        Verdict,
        id=_text,
        status=st.sampled_from(STATUSES) if status is None else status,
        tier=st.sampled_from(get_args(Tier)),
        task=_objects,
        candidate=_objects,
        grade=grades,
        checks=st.lists(checks, max_size=4),
        flags=st.lists(flags, max_size=3),
        compile=_objects
        | st.fixed_dictionaries(
            {"targets": _json | st.dictionaries(_text, _objects | st.just({"kernels": {"k": 1}}), max_size=2)}
        )
        | st.fixed_dictionaries(
            {
                "targets": st.dictionaries(
                    st.sampled_from(["sm_80", "sm_90", "sm_100"]),
                    st.lists(st.sampled_from(_COMPILED), max_size=3).map(lambda said: target(*said)),
                )
            }
        ),
        perf=st.none() | perfs(),
        rewards=st.dictionaries(_text, st.none() | _numbers, max_size=2),
        kb_compat=st.dictionaries(_text, st.booleans(), max_size=2),
        env=_objects,
        cost=_objects,
        error=_text,
        feedback=_text,
    )


def perf(speedup: float = 2.0, **more: Any) -> Perf:
    values: dict[str, Any] = {
        "device": "NVIDIA H200",
        "regime": "device",
        "median_us": 50.0,
        "ci": [49.0, 51.0],
        "n": 90,
        "baselines": {"eager": 75.0 * speedup, "compile": 50.0 * speedup},
        "speedup": speedup,
        "speedup_lo": speedup * 0.98,
        "speedup_hi": speedup * 1.02,
    }
    return Perf(**(values | more))


def timed(
    speedup: float = 2.0, *, coverage: float | None = 1.0, robust: bool | None = True, **more: Any
) -> Verdict:
    """A correct candidate that was timed."""
    grade = Grade(
        robust=robust,
        drop_in="strict",
        coverage=coverage,
        torch_share=None if coverage is None else 1 - coverage,
        deterministic=True,
        shape_specialised=False,
    )
    return Verdict(id="sha256:0", status="PASSED", tier="gpu_timed", grade=grade, perf=perf(speedup), **more)


def untimed(**more: Any) -> Verdict:
    """A correct candidate as a machine without a GPU knows it."""
    return Verdict(
        id="sha256:0",
        status="PASSED",
        tier="interpreter",
        grade=Grade(robust=True, drop_in="strict", coverage=1.0),
        **more,
    )
