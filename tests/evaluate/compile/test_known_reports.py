"""What is compiled already is not compiled again, and nobody is told what another source said of itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kernelmill.evaluate.compile import compiling
from kernelmill.evaluate.compile.compiling import CompileReport
from kernelmill.evaluate.compile.known_reports import KnownReports
from kernelmill.evaluate.compile.targets import DEFAULT
from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.sandbox import Reply
from kernelmill.sandbox.reply import make_reply
from tests.evaluate.corpus import case

LAUNCH = {"kernel": "add"}


def found(status: str | None = None) -> CompileReport:
    kernels = {"add": compiling.report(status, status and "why")}
    targets = {"sm_90": compiling.target_report(kernels)}
    return CompileReport(targets=targets, seconds=0.5, cpu=0.4)


class FakeCompiler:
    """Gives a report after a turn of the loop, and counts."""

    def __init__(self, report: Callable[[], CompileReport] = found) -> None:
        self.report, self.runs, self.at_once, self.most_at_once = report, 0, 0, 0

    async def __call__(self) -> CompileReport:
        self.runs += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.report()


def asked(known: KnownReports, compile_it: FakeCompiler, *sources: str) -> list[CompileReport]:
    """Ask for the reports of all sources at the same time."""

    async def all_of_them() -> list[CompileReport]:
        return await asyncio.gather(*(known.get([source], compile_it) for source in sources))

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("status", [None, "COMPILE_ERROR", "OUT_OF_RESOURCES"])
def test_the_same_is_compiled_once_at_the_same_time_and_later(status: str | None) -> None:
    known, compile_it = KnownReports(), FakeCompiler(lambda: found(status))
    reports = [*asked(known, compile_it, "a", "a", "a"), *asked(known, compile_it, "a")]
    assert compile_it.runs == 1
    assert [report["targets"] for report in reports] == [found(status)["targets"]] * 4
    assert [(report["seconds"], report["cpu"]) for report in reports] == [(0.5, 0.4), *[(0.0, 0.0)] * 3]


def test_what_differs_in_anything_given_is_compiled_for_itself() -> None:
    known, compile_it = KnownReports(), FakeCompiler()
    asked(known, compile_it, "a", "b", "a ")
    assert compile_it.runs == 3


@pytest.mark.parametrize("status", ["TIMEOUT", "INFRA_ERROR", "UNSUPPORTED"])
def test_what_another_run_may_not_repeat_is_not_kept_and_nobody_waits_twice(status: str) -> None:
    known, compile_it = KnownReports(), FakeCompiler(lambda: found(status))
    asked(known, compile_it, "a", "a", "a")
    assert (compile_it.runs, compile_it.most_at_once) == (3, 2)
    asked(known, compile_it, "a")
    assert compile_it.runs == 4


def test_who_waits_for_one_that_fails_compiles() -> None:
    known, good = KnownReports(), FakeCompiler()

    async def broken() -> CompileReport:
        await asyncio.sleep(0)
        raise OSError("no space left")

    async def both() -> tuple[CompileReport | BaseException, CompileReport | BaseException]:
        return await asyncio.gather(known.get(["a"], broken), known.get(["a"], good), return_exceptions=True)

    failed, report = asyncio.run(both())
    assert isinstance(failed, OSError)
    assert report == found()


def test_a_report_that_its_reader_changes_stays_as_it_was() -> None:
    known, compile_it = KnownReports(), FakeCompiler()
    for _ in range(3):
        (report,) = asked(known, compile_it, "a")
        assert report["targets"] == found()["targets"]
        report["targets"].clear()
    assert compile_it.runs == 1


def test_the_least_recently_used_is_forgotten() -> None:
    known, compile_it = KnownReports(most=2), FakeCompiler()
    for source in "abac":  # b is the one to go
        asked(known, compile_it, source)
    assert compile_it.runs == 3
    asked(known, compile_it, "a", "c")
    assert compile_it.runs == 3
    asked(known, compile_it, "b")
    assert compile_it.runs == 4


class DeadSandbox:
    """Its first process ends without a report, as if this machine had killed it. Later ones answer."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, request: dict[str, Any]) -> Reply:
        self.runs += 1
        if self.runs <= 2:  # the try with all kernels, and the one with this kernel alone
            return make_reply("crashed", message="killed by SIGKILL", seconds=0.1)
        return make_reply("ok", result={**found()}, seconds=0.1)


def test_a_process_that_died_is_not_remembered() -> None:
    known, sandbox = KnownReports(), DeadSandbox()

    async def compile_it() -> CompileReport:
        return await compiling.cross_compile(sandbox, {}, [LAUNCH], ["sm_90"], 1.0)  # type: ignore[arg-type]

    async def twice() -> list[str | None]:
        reports = [await known.get(["a"], compile_it) for _ in range(2)]
        return [report["targets"]["sm_90"]["kernels"]["add"]["status"] for report in reports]

    assert asyncio.run(twice()) == ["COMPILE_ERROR", None]


def test_in_an_evaluator_equal_kernels_are_compiled_once_and_others_for_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second candidate says something else beside the same kernels. The third has another kernel."""
    pytest.importorskip("triton")
    requests: list[tuple[Any, list[str]]] = []
    real = compiling.cross_compile

    async def counted(
        sandbox: Any, kernels: Any, launches: Any, targets: list[str], *rest: Any
    ) -> CompileReport:
        requests.append((kernels, targets))
        return await real(sandbox, kernels, launches, targets, *rest)

    monkeypatch.setattr(compiling, "cross_compile", counted)
    honest = case("A15_ok_autograd_function")
    beside = honest.code + "\nSAYS = 'something else'\n"
    other = honest.code.replace("    tl.store(", "    # stores\n    tl.store(")
    assert other != honest.code

    async def judged() -> list[Verdict]:
        pairs = [
            Pair(str(number), honest.reference, code, honest.entry_point)
            for number, code in enumerate((honest.code, beside, other))
        ]
        async with Evaluator(Options(device="cpu"), workers=2) as evaluator:
            return await asyncio.gather(*map(evaluator.evaluate, pairs))

    verdicts = asyncio.run(judged())
    assert [verdict.status for verdict in verdicts] == ["PASSED"] * 3
    assert [targets for _, targets in requests] == [[*DEFAULT]] * 2
    assert requests[0][0] != requests[1][0]
    assert verdicts[0].compile == verdicts[1].compile
    assert [list(verdict.compile["targets"]) for verdict in verdicts] == [["sm_90"]] * 3
