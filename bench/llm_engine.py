"""How fast the engine asks, beside the plain way, in one run.

1 s latency, 256 calls at once, 4,096 calls: 256 calls/s is the ceiling. Ours is the whole command `kernelmill rate`,
journal on, every answer durable; its rate is taken over the time in which it asks, its CPU over the whole process. The
plain way is what scripts do: `AsyncOpenAI`, a semaphore, `gather`, everything in memory. Each side runs in a process of its
own against the same server process, in turn, twice; the best of each is compared.

Must hold: at least 85% of the ceiling, at most 3 ms of client CPU a call.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from common import measured, save, server, write_evals

CALLS, CONCURRENCY, LATENCY = 4096, 256, 1.0

PLAIN = """
import asyncio, json, sys, time
from openai import AsyncOpenAI

async def main(source, base_url, concurrency):
    client = AsyncOpenAI(base_url=base_url, api_key="none")
    semaphore = asyncio.Semaphore(concurrency)
    rows = [json.loads(line) for line in open(source)]
    async def rate(row):
        async with semaphore:
            answer = await client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": "Rate this module.\\n" + row["info"]["python_code"]}])
            return {**row, "difficulty": answer.choices[0].message.content}
    started = time.monotonic()
    results = await asyncio.gather(*(rate(row) for row in rows))
    seconds = time.monotonic() - started
    with open(source + ".plain", "w") as file:
        file.writelines(json.dumps(row) + "\\n" for row in results)
    print(json.dumps({"asking": seconds}))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def main() -> None:
    sides: dict[str, list[dict[str, float]]] = {"kernelmill": [], "plain": []}
    with tempfile.TemporaryDirectory() as folder, server(LATENCY) as base_url:
        source = Path(folder) / "evals.jsonl"
        write_evals(source, CALLS, code_bytes=3000, row_bytes=12_000)
        for turn in range(2):
            output = Path(folder) / f"out{turn}" / "rows.jsonl"
            line = [sys.executable, "-m", "kernelmill", "rate", str(source), "-o", str(output)]
            line += ["--base-url", base_url, "--model", "fake", "-c", str(CONCURRENCY)]
            ours = measured(line)
            manifest = json.loads(output.with_name("rows.manifest.json").read_text())
            assert manifest["rows"]["out"] == manifest["usage"]["calls"] == CALLS
            sides["kernelmill"].append(
                _figures(manifest["usage"]["seconds_asking"], ours.seconds, ours.cpu, ours.peak_mb)
            )
            plain = measured([sys.executable, "-c", PLAIN, str(source), base_url, str(CONCURRENCY)])
            sides["plain"].append(
                _figures(json.loads(plain.stdout)["asking"], plain.seconds, plain.cpu, plain.peak_mb)
            )
    best = {name: max(runs, key=lambda run: run["calls_per_second"]) for name, runs in sides.items()}
    ours = best["kernelmill"]
    save(
        "llm_engine",
        {
            "calls": CALLS,
            "concurrency": CONCURRENCY,
            "latency_s": LATENCY,
            "ceiling_calls_per_second": CONCURRENCY / LATENCY,
            "runs": sides,
            "best": best,
            "share_of_ceiling": round(ours["calls_per_second"] * LATENCY / CONCURRENCY, 4),
            "faster_than_plain": round(ours["calls_per_second"] / best["plain"]["calls_per_second"], 3),
        },
    )
    if ours["calls_per_second"] < 0.85 * CONCURRENCY / LATENCY or ours["cpu_ms_per_call"] > 3.0:
        sys.exit("NOT MET: at least 85% of the ceiling and at most 3 ms of CPU a call")


def _figures(asking: float, seconds: float, cpu: float, peak_mb: float) -> dict[str, float]:
    return {
        "calls_per_second": round(CALLS / asking, 1),
        "cpu_ms_per_call": round(1000 * cpu / CALLS, 3),
        "whole_command_s": round(seconds, 2),
        "peak_mb": round(peak_mb),
    }


if __name__ == "__main__":
    main()
