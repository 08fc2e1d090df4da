"""Probes that need a real GPU: CUDA graph replay and profiling."""

from __future__ import annotations

from kernelmill.evaluate.gpu.session import GpuSession
from kernelmill.evaluate.judge.comparing import Returned
from kernelmill.evaluate.judge.trial import Trial


def graph(trial: Trial, session: GpuSession) -> None:
    """Capture a call and replay it on other inputs: Python decisions on the first inputs must not matter.

    This runs last, because a failed capture may leave the stream in a bad state. A call that cannot be
    captured (it waits for the GPU, or reads a value) is skipped.
    """
    if trial.facts.random:
        trial.record.check("graph_replay", "skip", "the reference is random")
        return
    if trouble := session.captured(session.reference.inputs(trial.seed())):
        trial.record.check("graph_replay", "skip", f"not captured: {trouble[:200]}")
        return
    fresh = session.reference.inputs(trial.seed())
    outputs, trouble = session.replayed(fresh)
    if outputs is None:
        trial.record.check("graph_replay", "skip", f"not replayed: {trouble[:200]}")
        return
    found = session.judge("graph_replay", fresh, Returned(outputs, "", {}, 0.0), 0)
    if not found.ok:
        trial.hack("B8.stale_under_replay", detail=found.detail)


def profile(trial: Trial, session: GpuSession) -> None:
    """Profile one call, to see whose kernels took the time on the GPU.

    Slow to start, hence only for audits.
    """
    ran, trouble = session.profiled(session.reference.inputs(trial.seed()))
    total = sum(time for _, time in ran)
    if not total:
        trial.record.check("profiler", "skip", f"no profile: {trouble[:200]}")
        return
    names = {kernel.rpartition(".")[2] for kernel in trial.record.kernels}
    own = sum(time for name, time in ran if name in names)
    slowest = sorted(ran, key=lambda one: -one[1])[:3]
    text = (
        f"{own:.1f} of {total:.1f} us in its own kernels; most: {', '.join(name[:60] for name, _ in slowest)}"
    )
    trial.record.check("profiler", "pass" if own else "fail", text)
    to_host = sum(name.startswith("Memcpy DtoH") for name, _ in ran)
    if to_host:
        trial.record.flag("A8.copies_to_host", "soft", copies=to_host)
