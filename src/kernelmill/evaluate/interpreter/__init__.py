"""Run Triton kernels written for a GPU on a CPU, with a GPU's numerics, and observe them.

Import this with TRITON_INTERPRET=1 set, before anything imports triton. Call install() once, in the process
that will run the candidate, before its module is executed. It patches torch and triton in that process
permanently. From outside, use only the names below.

In: launches made by the candidate. Out: results, and an `Observed` per call. The observations come from the
candidate's own process, which a hostile candidate may tamper with, so a judge must check from outside.

    handles, programs    a value: an array with an axis for the programs; which programs run together
    language, rewriting  triton.language, and kernels, as the compiler reads them
    speed                cheaper objects
    operations/          arithmetic as on a GPU, blocks rearranged, reductions and scans, libdevice
    memory/              loads, stores and atomics, with bounds and races checked
    launch, running      launches; the programs of a grid in batches, or one by one
    autotune             triton.autotune without timing
    observe, unsupported what is observed of a call; what the interpreter cannot run

The GPU that torch and Triton see is `evaluate.fake_gpu`.
"""

from __future__ import annotations

import functools
import os
import traceback
from typing import Any

if os.environ.get("TRITON_INTERPRET") != "1":
    raise RuntimeError(
        "kernelmill.evaluate.interpreter needs TRITON_INTERPRET=1, set before triton is imported"
    )

from triton.runtime.interpreter import interpreter_builder

from kernelmill.evaluate.fake_gpu import cuda, driver
from kernelmill.evaluate.fake_gpu.host import place
from kernelmill.evaluate.interpreter import as_compiled, autotune, handles, language, launch, programs, speed
from kernelmill.evaluate.interpreter.memory import access, atomics, tiles
from kernelmill.evaluate.interpreter.observe import Launch, Observed, Observer, Oob, Race, observer
from kernelmill.evaluate.interpreter.operations import blocks, libdevice, numerics, reduce
from kernelmill.evaluate.interpreter.unsupported import is_unsupported
from kernelmill.evaluate.interpreter_gaps import UNSUPPORTED, Unsupported

__all__ = [
    "UNSUPPORTED",
    "Launch",
    "Observed",
    "Observer",
    "Oob",
    "Race",
    "Unsupported",
    "install",
    "is_unsupported",
    "observer",
    "place",
    "prepare",
    "progress",
]


def prepare() -> None:
    """Do in a server what its children inherit: all that concerns Triton and not torch.

    Kernels then run in this interpreter there too, on ordinary tensors.
    """
    language.prepare(*libdevice.PACKAGES)
    launch.prepare()
    _install_in_triton()


def install() -> None:
    """Make this process run Triton code written for a GPU on the CPU, permanently."""
    _install_in_triton()
    as_compiled.forget_the_setting()
    driver.install()
    cuda.install()


@functools.cache
def _install_in_triton() -> None:
    handles.install()
    programs.install()
    language.install()
    speed.install()
    numerics.install()
    blocks.install()
    reduce.install()
    access.install()
    atomics.install()
    tiles.install()
    libdevice.install()
    launch.install()
    autotune.install()
    as_compiled.install()


def progress(error: BaseException) -> str:
    """How far the launch got that this error interrupted.

    Empty if there was no launch, or it was still in its first program.
    """
    at: Any = getattr(interpreter_builder, "grid_idx", None)
    inside = any(frame.f_code is launch.RUN for frame, _ in traceback.walk_tb(error.__traceback__))
    return (
        f"stopped in program {tuple(at)} of {tuple(interpreter_builder.grid_dim)}"
        if inside and any(at)
        else ""
    )
