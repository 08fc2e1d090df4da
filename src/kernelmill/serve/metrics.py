"""Counters of a running service, in Prometheus' text format.

Written by hand, because it is a page of code and needs no client library.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds: from a verdict by static checks to two timeouts."""


class Metrics:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
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
        lines: list[str] = []

        def family(
            name: str, kind: str, what: str, samples: Iterable[tuple[str, Mapping[str, str], float]]
        ) -> None:
            lines.append(f"# HELP kernelmill_{name} {what}")
            lines.append(f"# TYPE kernelmill_{name} {kind}")
            lines.extend(
                f"kernelmill_{name}{suffix}{_labels(labels)} {value:.10g}"
                for suffix, labels, value in samples
            )

        requests = sorted(self.requests.items())
        family(
            "requests_total", "counter", "HTTP requests, by endpoint and status.",
            [("", {"endpoint": endpoint, "status": status}, n) for (endpoint, status), n in requests],
        )  # fmt: skip
        for name, what, label, counter in (
            ("verdicts_total", "Candidates judged, by the verdict's status.", "status", self.verdicts),
            ("answers_total", "Verdicts given, by where they came from.", "source", self.answers),
            ("rejected_total", "Requests refused before anything was judged, by reason.", "reason", self.rejected),
        ):  # fmt: skip
            family(name, "counter", what, [("", {label: key}, n) for key, n in sorted(counter.items())])
        family("cancelled_total", "counter", "Evaluations that ended early.", [("", {}, self.cancelled)])
        buckets = [("_bucket", {"le": f"{limit:g}"}, self._buckets[limit]) for limit in BUCKETS]
        family(
            "evaluation_seconds", "histogram", "How long judging a candidate took, without waiting for its turn.",
            [*buckets, ("_bucket", {"le": "+Inf"}, self._judged), ("_sum", {}, self._seconds), ("_count", {}, self._judged)],
        )  # fmt: skip
        for name, value in gauges.items():
            family(name, "gauge", _GAUGES[name], [("", {}, value)])
        return "\n".join(lines) + "\n"


_GAUGES = {
    "queue_depth": "Candidates that wait for their turn.",
    "in_flight": "Candidates that are being judged.",
    "ready": "1 when the service takes requests.",
}


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
