"""`kernelmill serve` under load: 200 clients that ask one thing after another for a minute, 5 % of it hostile.

Twice: once undisturbed, once with the service killed by SIGKILL in the middle and started again by whoever watches it. Must
hold: every request that was begun has its verdict, no attacker is called correct, the service says 429 when it is full, its
memory does not grow, the 99th percentile of `/health` is under 100 ms, no process is left. The clients, the service and what
it runs share this machine's cores. `--seconds 10` is a quick look, which is not saved.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import http.client
import itertools
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
from common import save
from hostile_candidates import HOSTILE

from kernelmill.errors import EndpointError
from kernelmill.rl.client import Ask, AsyncRewardClient, ClientOptions

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.evaluate.corpus import case, cases

CLIENTS, SECONDS, EVERY = 200, 60.0, 20
"""One in twenty is hostile."""
QUEUE, TIMEOUT = 64, 5
P99_MS, GROWTH_MB = 100.0, 64.0
PROBE_SECONDS = 0.05
DOWN_SECONDS = 2.0
_SUBREAPER = 36
_HARMLESS = ("attack:lowers_limits", "attack:reads_everywhere", "text:long_line")
"""What the sandbox refuses without harm may leave a kernel that is right."""


class Service:
    """The service as a process, always at the same port."""

    def __init__(self, folder: Path, workers: int, queue: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._line = [sys.executable, "-m", "kernelmill", "serve", "--port", str(self.port), "--quiet", "--device", "cpu"]  # fmt: skip
        self._line += ["--workers", str(workers), "--queue", str(queue), "--timeout", str(TIMEOUT)]
        self._log = (folder / "serve.log").open("ab")
        self._past: Counter[str] = Counter()
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._line, stderr=self._log)
        self.memory = _Memory(self.process.pid)

    def wait_until_ready(self) -> None:
        end = time.monotonic() + 180
        while probe(self.port)[1] != 200:
            if time.monotonic() > end or self.process.poll() is not None:
                sys.exit(f"the service did not start: {Path(self._log.name).read_text('utf-8')[-2000:]}")
            time.sleep(0.2)

    def kill(self) -> None:
        self._past += self._page()
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        self._log.close()
        return status

    def counts(self) -> Counter[str]:
        """What was answered and what was refused, also before it was killed."""
        return self._past + self._page()

    def _page(self) -> Counter[str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found: Counter[str] = Counter()
        for name, value in re.findall(r'^kernelmill_requests_total\{endpoint="/evaluate",status="(\d+)"\} (\S+)$', text, re.M):  # fmt: skip
            found[name] = int(float(value))
        return found


class _Memory:
    """What the service's own process and its servers hold: those that live as long as it does."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def now(self) -> float:
        everybody = [self._process, *self._process.children()]
        return sum(_rss(process) for process in everybody)

    def main(self) -> float:
        return _rss(self._process)


def _rss(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0  # it has just ended


def probe(port: int) -> tuple[float, int]:
    """Milliseconds and status of one `/health`, over a connection of its own; 0: nobody listens."""
    start = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        status = connection.getresponse()
        status.read()
        return (time.perf_counter() - start) * 1000, status.status
    except (ConnectionError, http.client.HTTPException):
        return (time.perf_counter() - start) * 1000, 0
    finally:
        connection.close()


class Prober:
    """Asks for `/health` from a process of its own, so that the clients' work does not show in the figures."""

    def __init__(self, port: int) -> None:
        line = [sys.executable, __file__, "--probe", str(port)]
        self._process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        self.seen: list[tuple[float, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            milliseconds, status = line.split()
            self.seen.append((float(milliseconds), int(status)))

    def stop(self) -> dict[str, Any]:
        self._process.terminate()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        times = sorted(milliseconds for milliseconds, status in self.seen if status)
        return {
            "asked": len(self.seen),
            "by_status": {str(key): count for key, count in sorted(Counter(s for _, s in self.seen).items())},
            "p50_ms": round(statistics.median(times), 1),
            "p99_ms": round(times[min(len(times) - 1, int(len(times) * 0.99))], 1),
            "max_ms": round(times[-1], 1),
        }


def _probe_for_ever(port: int) -> None:
    while True:
        print(*probe(port), flush=True)
        time.sleep(PROBE_SECONDS)


def asks() -> Iterator[tuple[str, Ask]]:
    """Kernels of the corpus and hostile ones, each with a comment of its own: the same content would be judged once.

    As in training, most are wrong and known to be so by reading them; one in four is right and runs. `right`, `wrong`, or the
    name of the hostile one.
    """
    right = [one for one in cases() if one.labels == {"correct"} and one.tier == "interpreter"]
    wrong = [one for one in cases() if "correct" not in one.labels and one.tier == "static"]
    swish, hostile = case("X_ok_swish"), sorted(HOSTILE)
    for n in itertools.count():
        if n % EVERY == 3:  # not one of every fourth, which are right
            name = hostile[n // EVERY * 7 % len(hostile)]  # all kinds soon
            yield name, Ask(swish.reference, f"{HOSTILE[name]}\n# {n}\n", swish.entry_point)
        else:
            name, kind = ("right", right) if n % 4 == 0 else ("wrong", wrong)
            one = kind[n % len(kind)]
            yield name, Ask(one.reference, f"{one.code}\n# {n}\n", one.entry_point)


async def load(service: Service, clients: int, seconds: float, kill: bool) -> dict[str, Any]:
    """What the clients saw. Each asks, waits for the answer and asks again; after `seconds` they finish what they began."""
    source, end = asks(), time.monotonic() + seconds
    begun, hostile = 0, 0
    verdicts: Counter[str] = Counter()
    lost: list[str] = []
    wronged: list[str] = []
    fooled: list[str] = []
    waits: list[float] = []
    attempts = 0

    async def client(asking: AsyncRewardClient) -> None:
        nonlocal begun, hostile, attempts
        while time.monotonic() < end:
            name, ask = next(source)
            begun, start = begun + 1, time.monotonic()
            hostile += name not in ("right", "wrong")
            try:
                found = await asking.grade(*ask)
            except EndpointError as error:
                lost.append(str(error)[:200])
                continue
            waits.append(time.monotonic() - start)
            attempts += found.attempts
            verdicts[found.status] += 1
            if found.verdict == "correct" and name not in ("right", *_HARMLESS):
                fooled.append(name)
            if name == "right" and found.verdict != "correct":
                wronged.append(f"{found.status}: {found.record.get('error', '')[:200]}")

    async def disturb() -> None:
        await asyncio.sleep(seconds / 2)
        await asyncio.to_thread(service.kill)
        await asyncio.sleep(DOWN_SECONDS)
        service.start()

    options = ClientOptions(service.url, timeout=300, patience=900, in_flight=clients)
    async with AsyncRewardClient(options) as asking, asyncio.TaskGroup() as group:
        if kill:
            group.create_task(disturb())
        for _ in range(clients):
            group.create_task(client(asking))
    return {
        "requests": begun,
        "hostile": hostile,
        "answered": len(waits),
        "lost": lost,
        "attempts": attempts,
        "by_status": dict(verdicts.most_common()),
        "right_that_are_not_correct": wronged,
        "wrong_or_hostile_called_correct": fooled,
        "wait_p50_s": round(statistics.median(waits), 1),
        "wait_max_s": round(max(waits), 1),
        "seconds": round(time.monotonic() - (end - seconds), 1),
    }


def run(
    folder: Path, clients: int, seconds: float, workers: int, kill: bool, queue: int = QUEUE
) -> dict[str, Any]:
    service = Service(folder, workers, queue)
    try:
        service.wait_until_ready()
        before, main_before = service.memory.now(), service.memory.main()
        prober = Prober(service.port)
        found = asyncio.run(load(service, clients, seconds, kill))
        health = prober.stop()
        settled(service)
        after, main_after = service.memory.now(), service.memory.main()
        counts = service.counts()
    finally:
        status = service.stop()
    return {
        **found,
        "http": dict(sorted(counts.items())),
        "health": health,
        "memory_mb": {
            "before": round(before, 1),
            "after": round(after, 1),
            "main_before": round(main_before, 1),
            "main_after": round(main_after, 1),
        },
        "restarts": int(kill),
        "exit_status": status,
        "orphans": orphans(),
    }


def settled(service: Service) -> None:
    """A moment for what the last candidates left to be cleared away."""
    end = time.monotonic() + 10
    last = service.memory.now()
    while time.monotonic() < end:
        time.sleep(1)
        now = service.memory.now()
        if abs(now - last) < 1:
            return
        last = now


def orphans() -> list[str]:
    """Processes that outlived the service, after a moment to end."""
    end = time.monotonic() + 5
    while True:
        left = [
            child
            for child in psutil.Process().children(recursive=True)
            if child.status() != psutil.STATUS_ZOMBIE
        ]
        if not left or time.monotonic() > end:
            return [f"{child.pid} {child.name()}" for child in left]
        time.sleep(0.2)


def unmet(found: dict[str, Any]) -> list[str]:
    """The bounds that these figures do not keep."""
    broken = [
        f"{name}: {what}" for name in ("undisturbed", "restarted") for what in unmet_once(found[name], P99_MS)
    ]
    if found["restarted"]["restarts"] < 1:
        broken.append("it was never killed")
    if found["clients"] < CLIENTS or found["seconds"] < SECONDS:
        broken.append(f"too few clients or too short: {found['clients']}, {found['seconds']} s")
    return broken


def unmet_once(one: dict[str, Any], p99_ms: float) -> list[str]:
    memory, wronged = one["memory_mb"], one["right_that_are_not_correct"]
    fooled = one["wrong_or_hostile_called_correct"]
    checks = {
        f"{len(one['lost'])} requests were lost: {one['lost'][:3]}": not one["lost"],
        f"{one['answered']} of {one['requests']} were answered": one["answered"] == one["requests"],
        f"a right kernel is not correct: {wronged[:3]}": not wronged,
        f"a wrong or hostile candidate is correct: {fooled}": not fooled,
        "less than 4 % were hostile": one["hostile"] * 25 >= one["requests"],
        "nobody was told that the service is full": one["http"].get("429", 0) > 0,
        f"the service failed: {one['http']}": not set(one["http"]) - {"200", "429", "499", "503"},
        f"the 99th percentile of /health is {one['health']['p99_ms']} ms": one["health"]["p99_ms"] < p99_ms,
        f"memory grew: {memory}": memory["after"] - memory["before"] <= GROWTH_MB,
        f"processes are left: {one['orphans']}": not one["orphans"],
        f"exit status {one['exit_status']}": one["exit_status"] == 0,
    }
    return [what for what, holds in checks.items() if not holds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--probe", type=int, metavar="PORT", help="only ask for /health, for ever")
    options = parser.parse_args()
    if options.probe:
        _probe_for_ever(options.probe)
    # What a killed service leaves behind becomes our child, so that it can be found.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    result: dict[str, Any] = {
        "clients": options.clients,
        "seconds": options.seconds,
        "workers": options.workers,
        "queue": QUEUE,
        "timeout_s": TIMEOUT,
        "load_average_before": [round(value, 2) for value in os.getloadavg()],
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, kill in (("undisturbed", False), ("restarted", True)):
            result[name] = run(Path(folder), options.clients, options.seconds, options.workers, kill)
    broken = unmet(result)
    if options.seconds >= SECONDS:
        save("reward_server", result)
    else:
        print(json.dumps(result, indent=2))
    for line in broken:
        print(f"NOT MET: {line}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
