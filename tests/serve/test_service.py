"""The queue, with a judge that does what the test says."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelmill.errors import ConfigError
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.verdict import Status, Verdict
from kernelmill.serve.self_test import KNOWN
from kernelmill.serve.service import Full, Job, NotReady, Service, Waiter

OPTIONS = Options()


class Judge:
    """Says PASSED when it is let go, and knows what it was asked for and how much at once."""

    def __init__(self, status: Status = "PASSED") -> None:
        self.status: Status = status
        self.go = asyncio.Event()
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.now = self.most = 0

    async def __call__(self, pair: Pair, options: Options) -> Verdict:
        self.now += 1
        self.most = max(self.most, self.now)
        self.asked.append(pair.candidate)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(pair.candidate)
            raise
        finally:
            self.now -= 1
        return Verdict(id=pair.id, status=self.status, tier="interpreter")


def job(code: str, tf32: bool = False) -> Job:
    return Job(Pair(f"id of {code}", "reference", code), dataclasses.replace(OPTIONS, tf32=tf32))


def ready(judge: Callable[[Pair, Options], Awaitable[Verdict]], **more: float) -> Service:
    service = Service(judge, OPTIONS, **{"workers": 2, "queue": 3, "cache": 2, **more})  # type: ignore[arg-type]
    service.state = "ready"
    return service


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_no_more_are_judged_at_once_than_there_are_workers_and_no_more_wait_than_there_is_room() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        waiters = service.submit([job(str(n)) for n in range(5)])
        await settle()
        assert (service.in_flight, service.waiting, judge.most) == (2, 3, 2)
        with pytest.raises(Full) as full:
            service.submit([job("one more")])
        assert full.value.retry_after >= 1
        assert service.submit([job("0")])[0] is not None, "what is in flight takes no new place"
        judge.go.set()
        assert [(await waiter).status for waiter in waiters] == ["PASSED"] * 5
        assert (service.in_flight, service.waiting, judge.most) == (0, 0, 2)
        assert service.submit([job("one more")])

    asyncio.run(run())


def test_those_who_are_turned_away_come_back_one_after_another_and_before_no_work_is_left() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        service.metrics.judged("PASSED", 4.0)
        service.submit([job(str(n)) for n in range(5)])
        await settle()

        def told(name: str) -> int:
            with pytest.raises(Full) as full:
                service.submit([job(name)])
            return full.value.retry_after

        # A place every two seconds; the five that are here take ten.
        assert [told(str(n)) for n in range(10, 18)] == [2, 4, 6, 8, 10, 12, 2, 4]
        judge.go.set()

    asyncio.run(run())


def test_of_a_batch_all_is_taken_or_nothing() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        with pytest.raises(Full):
            service.submit([job(str(n)) for n in range(6)])
        await settle()
        assert (judge.asked, service.waiting) == ([], 0)
        assert len(service.submit([job("the same")] * 6)) == 6
        await settle()
        assert judge.asked == ["the same"]

    asyncio.run(run())


def test_the_same_content_is_judged_once_and_other_options_are_other_content() -> None:
    async def run() -> None:
        judge = Judge()
        judge.go.set()
        service = ready(judge)
        waiters = service.submit([job("a"), job("a"), job("a", tf32=True)])
        await asyncio.wait(waiters)
        (again,) = service.submit([job("a")])
        assert again.done()
        assert judge.asked == ["a", "a"]
        assert service.metrics.answers == Counter(judged=2, joined=1, cached=1)
        assert service.metrics.verdicts == Counter(PASSED=2)

    asyncio.run(run())


def test_the_oldest_of_what_is_remembered_is_forgotten_first() -> None:
    async def run() -> None:
        judge = Judge()
        judge.go.set()
        service = ready(judge, cache=2)
        for code in ("a", "b", "a", "c", "a", "b"):
            await service.submit([job(code)])[0]
        assert judge.asked == ["a", "b", "c", "b"]
        forgetful = ready(judge, cache=0)
        for _ in range(2):
            await forgetful.submit([job("z")])[0]
        assert judge.asked[-2:] == ["z", "z"]

    asyncio.run(run())


def test_trouble_of_our_own_is_an_answer_and_is_not_remembered(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        judge = Judge("INFRA_ERROR")
        judge.go.set()
        service = ready(judge)
        for _ in range(2):
            assert (await service.submit([job("a")])[0]).status == "INFRA_ERROR"
        assert judge.asked == ["a", "a"]

        async def breaks(pair: Pair, options: Options) -> Verdict:
            raise ConfigError("the sandboxed process\ncannot start")

        verdict = await ready(breaks).submit([job("a")])[0]
        assert (verdict.id, verdict.status) == ("id of a", "INFRA_ERROR")
        assert verdict.error == "ConfigError: the sandboxed process cannot start"
        assert "Traceback" in caplog.text

        hung = ready(Judge(), hard_timeout=0.01, workers=1)
        assert [(await one).status for one in hung.submit([job("a"), job("b")])] == ["INFRA_ERROR"] * 2
        assert hung.in_flight == 0, "a judge that hangs does not keep its place"

    asyncio.run(run())


def test_an_evaluation_goes_on_until_the_last_who_waits_for_it_leaves() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        first, second = service.submit([job("a"), job("a")])
        await settle()
        first.cancel()
        await settle()
        assert (judge.cancelled, service.in_flight) == ([], 1)
        second.cancel()
        await settle()
        assert (judge.cancelled, service.in_flight, service.metrics.cancelled) == (["a"], 0, 1)
        (third,) = service.submit([job("a")])
        judge.go.set()
        assert (await third).status == "PASSED"
        assert judge.asked == ["a", "a"]

    asyncio.run(run())


def test_who_comes_while_an_evaluation_is_being_cancelled_gets_one_of_his_own() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        (first,) = service.submit([job("a")])
        await settle()
        first.cancel()
        await asyncio.sleep(0)  # its leaving is noticed, its end is not
        (second,) = service.submit([job("a")])
        judge.go.set()
        assert (await second).status == "PASSED"

    asyncio.run(run())


def test_who_waits_for_a_turn_can_leave_without_ever_being_judged() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge, workers=1)
        first, second, third = service.submit([job("a"), job("b"), job("c")])
        await settle()
        second.cancel()
        judge.go.set()
        await asyncio.wait([first, third])
        assert judge.asked == ["a", "c"]

    asyncio.run(run())


def test_a_service_that_stops_lets_the_quick_finish_and_tells_the_others() -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        waiters = service.submit([job("a"), job("b"), job("c")])
        await settle()
        await service.stop(0.01)
        for waiter in waiters:
            with pytest.raises(NotReady, match="stopping"):
                await waiter
        with pytest.raises(NotReady, match="stopping"):
            service.submit([job("d")])
        assert sorted(judge.cancelled) == ["a", "b"]
        quick = Judge()
        service = ready(quick)
        (waiter,) = service.submit([job("a")])
        asyncio.get_running_loop().call_later(0.01, quick.go.set)
        await service.stop(5)
        assert waiter.result().status == "PASSED"

    asyncio.run(run())


def test_a_service_is_ready_only_when_the_known_candidate_is_called_correct() -> None:
    async def run() -> None:
        for status in ("INCORRECT_NUMERICAL", "UNSUPPORTED", "TIMEOUT"):
            judge = Judge(status)
            judge.go.set()
            service = Service(judge, OPTIONS, workers=1)
            with pytest.raises(ConfigError, match=f"known to be right was judged {status}"):
                await service.warm_up()
            with pytest.raises(NotReady):
                service.submit([job("a")])
        judge = Judge()
        judge.go.set()
        service = Service(judge, OPTIONS, workers=1)
        await service.warm_up()
        assert (service.state, service.tier, judge.asked) == ("ready", "interpreter", [KNOWN.candidate])
        on_gpu = Service(judge, dataclasses.replace(OPTIONS, device="cuda"), workers=1)
        with pytest.raises(ConfigError, match="--device cuda"):
            await on_gpu.warm_up()

    asyncio.run(run())


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("ask"), st.integers(0, 5)),
            st.tuples(st.just("leave"), st.integers(0, 40)),
            st.tuples(st.just("wait"), st.integers(0, 3)),
            st.tuples(st.just("let go"), st.just(0)),
        ),
        max_size=40,
    )
)
def test_whatever_comes_and_goes_every_ticket_ends_and_the_counts_add_up(
    steps: list[tuple[str, int]],
) -> None:
    async def run() -> None:
        judge = Judge()
        service = ready(judge)
        waiters: list[Waiter] = []
        for step, number in steps:
            if step == "ask":
                try:
                    waiters += service.submit([job(str(number))])
                except Full:
                    assert service.waiting + service.in_flight >= 5
            elif step == "leave" and waiters:
                waiters[number % len(waiters)].cancel()
            elif step == "wait":
                await settle() if number else await asyncio.sleep(0)
            else:
                judge.go.set()
        judge.go.set()
        if waiters:
            await asyncio.wait(waiters)
        await settle()
        metrics = service.metrics
        assert (service.in_flight, service.waiting, judge.now) == (0, 0, 0)
        assert judge.most <= 2
        assert metrics.answers.total() == sum(not waiter.cancelled() for waiter in waiters)
        assert metrics.verdicts.total() == len(judge.asked) - len(judge.cancelled)

    asyncio.run(run())


def test_what_the_text_decides_waits_for_no_worker_and_needs_no_place_in_the_queue() -> None:
    async def run() -> None:
        judge = Judge()

        async def static_verdict(pair: Pair, options: Options) -> Verdict | None:
            if pair.candidate == "unreadable":
                raise ValueError("a flaw of ours")
            said = pair.candidate.startswith("broken")
            return Verdict(id=pair.id, status="PARSE_ERROR", tier="static") if said else None

        service = ready(judge, cache=1)
        service._judge_statically = static_verdict
        kernels = service.submit([job(str(n)) for n in range(4)])
        (beside,) = await service.take([job("broken")])
        assert (await beside).status == "PARSE_ERROR"
        kernels += service.submit([job("unreadable")])
        await settle()
        assert (service.in_flight, service.waiting) == (2, 3), "the queue is full"
        with pytest.raises(Full):
            await service.take([job("one more")])
        with pytest.raises(Full):
            await service.take([job("broken, again"), job("one more")])
        full = await service.take([job("broken, again"), job("broken, too"), job("broken, again"), job("3")])
        assert [(await waiter).status for waiter in full[:3]] == ["PARSE_ERROR"] * 3
        assert not any(waiter.done() for waiter in [*kernels, full[3]])
        judge.go.set()
        assert [(await waiter).status for waiter in [*kernels, full[3]]] == ["PASSED"] * 6
        assert "broken" not in judge.asked
        assert service.metrics.verdicts["PASSED"] == 5

    asyncio.run(run())
