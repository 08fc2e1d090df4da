"""What a verdict looks like to each who asks, and the page of counts."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from kernelmill.evaluate.options import Options
from kernelmill.evaluate.verdict import Perf, Status, Verdict
from kernelmill.serve.bodies import EvaluateRequest, KernelBenchRequest, eval_answer
from kernelmill.serve.metrics import Metrics

BODY = KernelBenchRequest(original_model_src="a", custom_model_src="b")


def timed() -> Verdict:
    perf = Perf(
        device="NVIDIA H200", regime="device", median_us=61.5, ci=[61.2, 61.9], n=90,
        baselines={"eager": 104.3}, speedup=1.5, speedup_lo=1.4, speedup_hi=1.6,
    )  # fmt: skip
    return Verdict(id="x", status="PASSED", tier="gpu_timed", perf=perf)


@pytest.mark.parametrize("status", get_args(Status))
def test_every_status_has_an_answer_of_the_types_that_trainers_expect(status: Status) -> None:
    verdict = Verdict(id="x", status=status, tier="interpreter", feedback="what to do")
    answer = eval_answer(verdict, BODY, "its id", "default")
    assert type(answer["compiled"]) is type(answer["correctness"]) is bool
    assert answer["correctness"] == (status == "PASSED")
    assert (answer["runtime"], answer["runtime_stats"]) == (-1.0, {})
    assert answer["metadata"]["runtime"].startswith("not measured: ")
    assert answer["verdict"]["id"] == "its id"
    assert (answer["reward"] is None) == (answer["metadata"]["verdict"] == "inconclusive")
    said = [
        answer["metadata"].get(f"{kind}")
        for kind in ("compilation_error", "runtime_error", "correctness_issue")
    ]
    assert said.count("what to do") == (answer["metadata"]["verdict"] == "incorrect")
    json.dumps(answer, allow_nan=False)


def test_times_are_in_milliseconds_and_only_where_they_were_asked_for() -> None:
    answer = eval_answer(timed(), BODY, "x", "speedup")
    assert answer["runtime"] == pytest.approx(0.0615)
    assert answer["runtime_stats"]["num_trials"] == 90
    assert answer["runtime_stats"]["hardware"] == answer["metadata"]["hardware"] == "NVIDIA H200"
    assert answer["metadata"]["device"] == "cuda"
    assert "runtime" not in answer["metadata"]
    assert answer["reward"] == 1.5
    untimed = KernelBenchRequest(original_model_src="a", custom_model_src="b", measure_performance=False)
    assert eval_answer(timed(), untimed, "x", "speedup")["runtime"] == -1.0
    assert untimed.options(Options(), "gpu_timed").tier == "gpu"
    assert untimed.options(Options(), "interpreter").tier is None, "there is no clock to leave out"


def test_a_requests_options_are_the_services_but_for_what_it_asks() -> None:
    base = Options(device="cpu", timeout=30)
    body = EvaluateRequest(reference="a", candidate="b", audit=True, timeout=5)
    options = body.options(base)
    assert (options.device, options.audit, options.tf32, options.timeout) == ("cpu", True, False, 5)
    assert EvaluateRequest(reference="a", candidate="b").options(base) == base
    assert body.pair(options).id == body.pair(options).key(options), "without an id it goes by its content"


def test_the_page_of_counts_is_in_the_format_that_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.requests["/eval", "200"] += 3
    metrics.judged("PASSED", 0.7)
    metrics.judged("TIMEOUT", 1e9)
    page = metrics.text({"queue_depth": 0, "in_flight": 1, "ready": 1})
    sample = r'kernelmill_[a-z_]+(\{[a-z]+="[^"\n]*"(,[a-z]+="[^"\n]*")*\})? [0-9.e+]+'
    kinds: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kinds[name] = line.split(" ")
        elif not line.startswith("# HELP "):
            assert re.fullmatch(sample, line), line
            name = re.split(r"[{ ]", line)[0]
            assert name in kinds or re.sub(r"_(bucket|sum|count)$", "", name) in kinds
    assert page.endswith("\n")
    assert 'kernelmill_requests_total{endpoint="/eval",status="200"} 3.0\n' in page
    assert 'kernelmill_evaluation_seconds_bucket{le="0.5"} 0.0\n' in page
    assert 'kernelmill_evaluation_seconds_bucket{le="1"} 1.0\n' in page
    assert 'kernelmill_evaluation_seconds_bucket{le="300"} 1.0\n' in page
    assert 'kernelmill_evaluation_seconds_bucket{le="+Inf"} 2.0\n' in page
    assert "kernelmill_evaluation_seconds_count 2.0\n" in page


def test_a_services_page_has_its_own_counts_and_nothing_of_the_process_or_of_another() -> None:
    first, second = Metrics(), Metrics()
    first.judged("PASSED", 0.7)
    first.answers["judged"] += 1
    families = {line.split(" ")[2] for line in second.text({}).splitlines() if line.startswith("# TYPE ")}
    assert families == {
        f"kernelmill_{name}"
        for name in (
            *(f"{kind}_total" for kind in ("requests", "verdicts", "answers", "rejected", "cancelled")),
            "evaluation_seconds",
        )
    }
    assert "PASSED" not in second.text({})
    assert 'kernelmill_verdicts_total{status="PASSED"} 1.0\n' in first.text({})
