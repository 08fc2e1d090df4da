"""What the cross-compiler promises: the real compiler's answer for GPUs that are not here, from a confined process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.compile.compiling import (
    CompileReport,
    KernelReport,
    blame,
    clean,
    diagnostics,
)
from kernelmill.evaluate.evaluation import Evaluation
from kernelmill.evaluate.options import Options, Pair
from kernelmill.sandbox import Sandbox
from kernelmill.sandbox.reply import make_reply
from tests.evaluate.compile.kernels_to_compile import CANDIDATE, GOOD, REFUSED, launch, texts, tiles

pytest.importorskip("triton")
ALL = ["sm_80", "sm_90", "sm_100"]
XO = "x:*fp32 o:*fp32"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(compiling.WORKER, workers=1, timeout=30, programs=compiling.programs()) as sandbox:
        yield sandbox


def compiled(
    sandbox: Sandbox,
    *launches: dict[str, Any],
    candidate: str = CANDIDATE,
    targets: list[str] | None = None,
    seconds: float = 25,
) -> CompileReport:
    run = compiling.cross_compile(sandbox, texts(candidate), list(launches), targets or ["sm_90"], seconds)
    return asyncio.run(run)


def only(report: CompileReport, target: str = "sm_90") -> KernelReport:
    (kernel,) = report["targets"][target]["kernels"].values()
    return kernel


@pytest.mark.parametrize("name", GOOD)
def test_what_a_gpu_compiles_is_compiled_for_every_target(sandbox: Sandbox, name: str) -> None:
    report = compiled(sandbox, GOOD[name], targets=ALL)
    assert list(report["targets"]) == ALL
    for target in ALL:
        kernel = only(report, target)
        assert (kernel["status"], kernel["error"]) == (None, None)
        assert report["targets"][target]["ok"]
        assert 0 < (kernel["regs"] or 0) <= 255
        assert kernel["spills"] == 0
        assert kernel["shared"] is not None


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_gpu_refuses_is_refused_in_the_compilers_words(sandbox: Sandbox, name: str) -> None:
    asked, status, words = REFUSED[name]
    report = compiled(sandbox, asked)
    kernel = only(report)
    assert kernel["status"] == status
    assert words in (kernel["error"] or "")
    assert not report["targets"]["sm_90"]["ok"]


def test_a_tile_that_fits_hopper_and_not_ampere(sandbox: Sandbox) -> None:
    signature = "a:*fp16 b:*fp16 c:*fp16 M:i32 N:i32 K:i32"
    names = [pair.split(":")[0] for pair in signature.split()]
    asked = launch("matmul", signature, tiles(32, 256, 64), num_warps=8, num_stages=6, attrs=names)
    report = compiled(sandbox, asked, targets=["sm_80", "sm_90"])
    assert only(report, "sm_80")["status"] == "OUT_OF_RESOURCES"
    assert only(report, "sm_90")["status"] is None
    assert 163 << 10 < (only(report)["shared"] or 0) <= 227 << 10


def test_a_type_that_hopper_has_and_ampere_has_not(sandbox: Sandbox) -> None:
    asked = launch("dot", "a:*fp8e4nv b:*fp8e4nv c:*fp32", {"N": 32})
    report = compiled(sandbox, asked, targets=["sm_80", "sm_90"])
    assert only(report, "sm_80")["status"] == "COMPILE_ERROR"
    assert only(report, "sm_90")["status"] is None


def test_an_error_names_the_line_of_the_candidate(sandbox: Sandbox) -> None:
    error = only(compiled(sandbox, REFUSED["error in a helper"][0]))["error"] or ""
    line = int(re.match(r"line (\d+) of the candidate:", error).group(1))  # type: ignore[union-attr]
    assert CANDIDATE.splitlines()[line - 1].strip() == "return v + undefined_name"
    assert CANDIDATE.splitlines()[line - 1] in error


@pytest.mark.parametrize("name", ["assembly", "huge tensor", "comprehension"])
def test_an_error_tells_nothing_of_this_machine(sandbox: Sandbox, name: str) -> None:
    error = only(compiled(sandbox, REFUSED[name][0]))["error"] or ""
    assert len(error) <= compiling.MAX_ERROR
    assert not [part for part in (sys.prefix, "site-packages", "kernelmill-", "/tmp") if part in error]
    assert error == only(compiled(sandbox, REFUSED[name][0]))["error"]


def test_a_kernel_that_kills_the_compiler_is_blamed_alone(sandbox: Sandbox) -> None:
    report = compiled(
        sandbox, launch("deadly_assembly", XO), launch("any_size", XO), targets=["sm_80", "sm_90"]
    )
    for target in ("sm_80", "sm_90"):
        kernels = report["targets"][target]["kernels"]
        assert kernels["any_size"]["status"] is None
        assert kernels["deadly_assembly"]["status"] == "COMPILE_ERROR"
        assert "SIGABRT" in (kernels["deadly_assembly"]["error"] or "")
        assert "UNREACHABLE" in (kernels["deadly_assembly"]["error"] or "")


def statuses(report: CompileReport, target: str) -> list[str | None]:
    return [kernel["status"] for kernel in report["targets"][target]["kernels"].values()]


def test_a_kernel_that_takes_all_of_its_time_is_late_and_the_next_has_its_own(sandbox: Sandbox) -> None:
    report = compiled(sandbox, launch("endless", XO), launch("any_size", XO), seconds=1.5)
    assert statuses(report, "sm_90") == ["TIMEOUT", None]


def test_who_comes_when_the_time_of_all_is_over_is_not_called_late(sandbox: Sandbox) -> None:
    first = [launch("endless", XO), launch("endless", XO, {"B": 32})]
    report = compiled(sandbox, *first, launch("any_size", XO), targets=["sm_90", "sm_80"], seconds=1.5)
    assert statuses(report, "sm_90")[0] == "TIMEOUT"
    assert statuses(report, "sm_80") == ["UNSUPPORTED", "UNSUPPORTED"]


def test_an_autotuned_configuration_that_does_not_fit_is_skipped_as_on_a_gpu(sandbox: Sandbox) -> None:
    big = launch("dot", "a:*fp32 b:*fp32 c:*fp32", {"N": 256}, num_warps=8, config=0)
    small = launch("dot", "a:*fp32 b:*fp32 c:*fp32", {"N": 32}, config=1)
    wrong = launch("dot", "a:*fp32 b:*fp32 c:*fp32", {"N": 3}, config=2)
    assert only(compiled(sandbox, big, small))["status"] is None
    assert only(compiled(sandbox, big))["status"] == "OUT_OF_RESOURCES"
    assert only(compiled(sandbox, big, small, wrong))["status"] == "COMPILE_ERROR"
    assert (
        only(compiled(sandbox, big | {"config": None}, small | {"config": None}))["status"]
        == "OUT_OF_RESOURCES"
    )


def test_a_specialisation_is_compiled_once_for_each_target(tmp_path: Path) -> None:
    """Launches that differ only in the number of their configuration are one specialisation."""
    script = textwrap.dedent("""
        import json, sys
        from kernelmill.evaluate.compile import compiling, worker
        seen = []
        def compiled(source, options, target):
            seen.append([source.name, target.arch])
            return compiling.report("COMPILE_ERROR", "no")
        worker._compiled_source = compiled
        worker.handle(json.load(open(sys.argv[1])))
        print(json.dumps(seen))
    """)
    launches = [launch("any_size", XO, {"B": b}, config=n) for n, b in enumerate((64, 64, 128))]
    request = {"kernels": texts(), "launches": launches, "targets": ["sm_90", "sm_80"], "seconds": 60}
    (tmp_path / "request.json").write_text(json.dumps(request))
    command = [sys.executable, "-c", script, str(tmp_path / "request.json")]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout) == [["any_size", 90]] * 2 + [["any_size", 80]] * 2


def test_a_kernel_that_uses_what_is_not_the_language_is_refused_without_being_built(sandbox: Sandbox) -> None:
    candidate = "import os\nimport triton\nimport triton.language as tl\n\n"
    candidate += (
        "@triton.jit\ndef reads(x, o, B: tl.constexpr):\n    tl.store(o, tl.core.inspect.currentframe())\n"
    )
    kernel = only(compiled(sandbox, launch("reads", XO), candidate=candidate))
    assert kernel["status"] == "COMPILE_ERROR"
    assert "not Triton's language" in (kernel["error"] or "")


def test_of_several_launches_the_largest_is_shown(sandbox: Sandbox) -> None:
    small, large = (launch("dot", "a:*fp32 b:*fp32 c:*fp32", {"N": n}) for n in (16, 64))
    shown = only(compiled(sandbox, small, large))
    assert shown["shared"] == only(compiled(sandbox, large))["shared"]
    assert (shown["shared"] or 0) > (only(compiled(sandbox, small))["shared"] or 0)


@pytest.mark.parametrize(
    ("statuses", "result"),
    [
        ([None, None], "pass"),
        ([None, "UNSUPPORTED"], "pass"),
        (["UNSUPPORTED", "UNSUPPORTED"], "skip"),
        (["UNSUPPORTED", "COMPILE_ERROR"], "fail"),
    ],
)
def test_a_check_in_which_nothing_could_be_compiled_is_not_passed_but_skipped(
    statuses: list[str | None], result: str
) -> None:
    kernels = {
        f"k{n}": compiling.report(status, f"why {n}" if status else None) for n, status in enumerate(statuses)
    }
    work = Evaluation(Pair("1", "", ""), Options())
    targets = {"sm_90": compiling.target_report(kernels)}
    work.compiled(compiling.CompileReport(targets=targets, seconds=0.1, cpu=0.1))
    (check,) = work.verdict.checks
    assert (check.name, check.result) == ("compile:sm_90", result)
    if result == "skip":
        assert check.detail == "no kernel could be compiled: why 0"
        assert work.verdict.status == "PASSED"


def test_a_kernel_that_asks_for_its_target_gets_the_one_it_is_compiled_for(sandbox: Sandbox) -> None:
    candidate = textwrap.dedent("""
        import triton
        import triton.language as tl
        from triton.language.target_info import cuda_capability_geq

        @triton.jit
        def hopper_only(x, o, B: tl.constexpr):
            tl.static_assert(cuda_capability_geq(9, 0))
            tl.store(o + tl.arange(0, B), tl.load(x + tl.arange(0, B)))
    """)
    report = compiled(sandbox, launch("hopper_only", XO), candidate=candidate, targets=ALL)
    assert [report["targets"][target]["ok"] for target in ALL] == [False, True, True]


def test_an_unknown_target_is_our_mistake(sandbox: Sandbox) -> None:
    report = compiled(sandbox, launch("any_size", XO), targets=["sm_1"])
    assert only(report, "sm_1")["status"] == "INFRA_ERROR"


@pytest.mark.heavy
def test_a_launch_finds_what_was_compiled_here_in_the_cache(tmp_path: Any) -> None:
    """The key of a source built from a record is that of Triton's own launch with such arguments."""
    script = textwrap.dedent("""
        import json, sys
        import torch, triton
        from triton.backends.compiler import GPUTarget
        from kernelmill.evaluate.compile.source import ProgramKernels, on, source_of
        kernels = ProgramKernels(json.loads(open(sys.argv[1]).read()), sys.argv[3])
        kernel = kernels["add"]
        x = torch.empty(4096)
        gpu = GPUTarget("cuda", 90, 32)
        for n, launch in json.loads(sys.argv[2]):
            with on(gpu):
                launched = kernel.warmup(x, x, x, n, B=1024, num_warps=8, grid=(1,))
            source, options = source_of(launch, kernels, gpu)
            assert triton.compile(source, gpu, options).hash == launched.hash, n
    """)
    source = tmp_path / "kernels.json"
    source.write_text(json.dumps(texts()))
    plain = GOOD["add"] | {"attrs": ["x", "y", "o"]}
    one = launch("add", "x:*fp32 y:*fp32 o:*fp32", {"n": 1, "B": 1024}, attrs=["x", "y", "o"])
    asked = json.dumps(
        [(n, launch | {"num_warps": 8}) for n, launch in ((4096, GOOD["add"]), (4095, plain), (1, one))]
    )
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    subprocess.run(
        [sys.executable, "-c", script, str(source), asked, str(tmp_path)], check=True, env=environment
    )


def test_a_compile_needs_only_programs_that_come_with_triton() -> None:
    found = compiling.programs()
    assert {os.path.basename(path) for path in found} <= {"ptxas", "ptxas-blackwell"}
    assert found
    assert all(os.access(path, os.X_OK) for path in found)
    assert set(found) <= set(compiling.programs(host_compiler=True))


def test_the_module_for_the_orchestrator_imports_neither_torch_nor_triton() -> None:
    code = "import sys, kernelmill.evaluate.compile.compiling as c; c.programs(); assert not {'torch', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registers_and_spills_are_those_of_the_last_kernel_in_the_log() -> None:
    from kernelmill.evaluate.gpu_backends import Cuda

    log = (
        "Used 7 registers\n    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
        "ptxas info    : Used 140 registers, used 1 barriers\n    0 bytes stack frame, 4 bytes spill stores, 0 bytes"
    )
    assert Cuda().usage(log) == (140, 4)
    assert Cuda().usage("nothing of the kind") == (None, None)


def test_paths_are_cut_and_divisions_are_not() -> None:
    assert clean("at /opt/build/llvm/Error.h:779! x = a /b/ c / d") == "at Error.h:779! x = a /b/ c / d"
    assert clean(f"in {sys.prefix}/lib/python3/site-packages/triton/core.py") == "in core.py"
    assert len(clean("x" * 5000)) == compiling.MAX_ERROR


@given(st.text(), st.text(alphabet="abcxyz_0123456789", min_size=1, max_size=9), st.text())
def test_no_path_below_a_folder_of_ours_is_left(before: str, name: str, after: str) -> None:
    text = clean(f"{before}{sys.prefix}/{name}/{name}.py{after}")
    assert f"{sys.prefix}/{name}" not in text
    assert len(text) <= compiling.MAX_ERROR


def test_of_what_a_compiler_prints_only_the_errors_are_kept() -> None:
    printed = "module {\n  tt.func @k() {\n}\ncandidate.py:3:1: error: 'ttg.dot' op no\n" + "note\n" * 1000
    assert diagnostics(printed) == "candidate.py:3:1: error: 'ttg.dot' op no"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("timeout", "TIMEOUT"),
        ("error", "INFRA_ERROR"),
        ("out_of_memory", "COMPILE_ERROR"),
        ("crashed", "COMPILE_ERROR"),
    ],
)
def test_a_child_without_a_report_is_no_success(kind: Any, status: str) -> None:
    reply = make_reply(kind, type="OSError", message="m", seconds=1.0)
    found = blame(reply)
    assert found["status"] == status
    assert found["error"]


@pytest.mark.own_servers
@pytest.mark.heavy
def test_a_warm_server_compiles_a_small_kernel_in_a_fraction_of_what_a_new_one_takes(
    sandbox: Sandbox,
) -> None:
    def seconds(server: Sandbox) -> float:
        start = time.monotonic()
        assert only(compiled(server, GOOD["add"]))["status"] is None
        return time.monotonic() - start

    with Sandbox(compiling.WORKER, workers=1, timeout=30, programs=compiling.programs()) as fresh:
        cold = seconds(fresh)
    assert min(seconds(sandbox) for _ in range(5)) < cold / 3
