"""Counters of a running service, rendered by `prometheus_client` in Prometheus' text format.

Each service has its own `CollectorRegistry`: nothing of the process or of another service is on its page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds: from a verdict by static checks to two timeouts."""


class Metrics(Collector):
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, ...]] = Counter()
        """By endpoint and HTTP status; 499 is a client that disconnected before the response."""
        self.verdicts: Counter[str] = Counter()
        """Candidates judged, by status."""
        self.answers: Counter[str] = Counter()
        """Verdicts returned: `judged` for the request, `joined` to one in flight, or `cached`."""
        self.rejected: Counter[str] = Counter()
        self.cancelled = 0
        """Evaluations that were cancelled, because no client waited for them or the service stopped."""
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._judged = 0
        self._worked, self._by_workers = 0.0, 0
        self._gauges: Mapping[str, float] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def judged(self, status: str, seconds: float, by_worker: bool = True) -> None:
        """Count a verdict. `by_worker` is false if static checks decided it without a worker."""
        self.verdicts[status] += 1
        self._seconds += seconds
        self._judged += 1
        if by_worker:
            self._worked, self._by_workers = self._worked + seconds, self._by_workers + 1
        self._buckets.update(limit for limit in BUCKETS if seconds <= limit)

    def mean_seconds(self) -> float:
        """Return the mean time that a worker spends on one candidate."""
        return self._worked / self._by_workers if self._by_workers else 1.0

    def text(self, gauges: Mapping[str, float]) -> str:
        """Render the page for a scraper. `gauges` are the current values."""
        self._gauges = gauges
        return generate_latest(self._registry).decode()

    def collect(self) -> Iterable[Metric]:
        yield _counter(
            "requests", "HTTP requests, by endpoint and status.", ("endpoint", "status"), self.requests
        )
        for name, what, label, counter in (
            ("verdicts", "Candidates judged, by the verdict's status.", "status", self.verdicts),
            ("answers", "Verdicts given, by where they came from.", "source", self.answers),
            ("rejected", "Requests refused before anything was judged, by reason.", "reason", self.rejected),
        ):  # fmt: skip
            yield _counter(name, what, (label,), {(key,): number for key, number in counter.items()})
        yield _counter("cancelled", "Evaluations that ended early.", (), {(): self.cancelled})
        yield HistogramMetricFamily(
            "kernelmill_evaluation_seconds",
            "How long judging a candidate took, without waiting for its turn.",
            [*((f"{limit:g}", self._buckets[limit]) for limit in BUCKETS), ("+Inf", self._judged)],
            self._seconds,
        )
        for name, value in self._gauges.items():
            yield GaugeMetricFamily(f"kernelmill_{name}", _GAUGES[name], value)


def _counter(
    name: str, what: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"kernelmill_{name}", what, labels=labels)
    for values, number in sorted(counts.items()):
        family.add_metric(values, number)
    return family


_GAUGES = {
    "queue_depth": "Candidates that wait for their turn.",
    "in_flight": "Candidates that are being judged.",
    "ready": "1 when the service takes requests.",
}
