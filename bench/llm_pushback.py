"""How long a run takes against an endpoint that fails or has limits, beside the limiters of others, in one run.

800 calls, 64 at once, 0.1 s latency, four endpoints: one without faults; one of which 20% of all answers fail, 3% of them with
429 and `Retry-After: 1`; one that takes 16 calls at a time; one that takes 100 calls a second. The last two answer what is more
with 429 and `Retry-After: 1`. Seconds are the server's, from the first call to the last reply, so what a client does before
and afterwards does not count. The sides: `kernelmill rate`; a plain script (`AsyncOpenAI` with a semaphore and its own
exponential back-off, 10 retries); curator and DataDesigner where a Python that has them is named:

    python bench/llm_pushback.py --curator /tmp/curator/bin/python --data-designer /tmp/designer/bin/python

`allowed_s` is what the endpoint allows: its work divided by the calls that it takes at once, or the longest chain of waits that
it asks of one call. Must hold: kernelmill takes at most twice that, or twice its own time without faults for as many calls
where the machine is slower than the endpoint; and after the first burst at most one call in ten is over a limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from common import save, server, write_evals

from kernelmill.testing.fake_endpoint import FakeEndpoint

CALLS, CONCURRENCY, LATENCY, RETRY_AFTER = 800, 64, 0.1, 1.0
FAULTS = {"429-retry-after": 0.03, "500": 0.09, "drop": 0.04, "malformed": 0.04}
ENDPOINTS: dict[str, list[str]] = {
    "no faults": [],
    "20% fail": ["--script", json.dumps(FAULTS)],
    "16 at once": ["--at-once", "16"],
    "100 a second": ["--per-second", "100"],
}
REPLY = ["--reply", "text:<difficulty>low</difficulty>"]

PLAIN = """
import asyncio, json, sys
from openai import AsyncOpenAI

async def main(source, base_url, concurrency):
    client = AsyncOpenAI(base_url=base_url, api_key="none", max_retries=10)
    semaphore = asyncio.Semaphore(concurrency)
    async def rate(line):
        async with semaphore:
            try:
                answer = await client.chat.completions.create(
                    model="fake", messages=[{"role": "user", "content": json.loads(line)["info"]["python_code"]}])
                return answer.choices[0].message.content is not None
            except Exception:
                return False
    answered = await asyncio.gather(*(rate(line) for line in open(source)))
    print(json.dumps({"answered": sum(answered)}))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""

CURATOR = """
import json, os, sys
import tiktoken

class Words:  # the real vocabularies are downloads, and the counts do not matter here
    def encode(self, text, **_):
        return text.split()

tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: Words()
from bespokelabs import curator

class Rate(curator.LLM):
    def prompt(self, row):
        return row["code"]
    def parse(self, row, response):
        return [{"said": response}]

rows = [{"code": json.loads(line)["info"]["python_code"]} for line in open(sys.argv[1])]
limits = {"max_concurrent_requests": int(sys.argv[3]), "max_requests_per_minute": 10**6, "max_tokens_per_minute": 10**9}
llm = Rate(model_name="gpt-4o-mini", backend="openai",
           backend_params={"base_url": sys.argv[2], "require_all_responses": False, "max_retries": 10, **limits})
made = llm(rows)
print(json.dumps({"answered": len(getattr(made, "dataset", made))}))
"""

DATA_DESIGNER = """
import json, sys, tempfile
import data_designer.config as dd
from data_designer.interface import DataDesigner

calls = sum(1 for _ in open(sys.argv[1]))
provider = dd.ModelProvider(name="fake", endpoint=sys.argv[2], provider_type="openai", api_key="none")
asking = dd.ChatCompletionInferenceParams(max_parallel_requests=int(sys.argv[3]), timeout=60)
model = dd.ModelConfig(alias="m", model="fake", provider="fake", skip_health_check=True, inference_parameters=asking)
builder = dd.DataDesignerConfigBuilder(model_configs=[model])
builder.add_column(dd.SamplerColumnConfig(name="n", sampler_type=dd.SamplerType.UUID, params=dd.UUIDSamplerParams()))
builder.add_column(dd.LLMTextColumnConfig(name="said", prompt="question {{ n }}", model_alias="m"))
designer = DataDesigner(model_providers=[provider], artifact_path=tempfile.mkdtemp())
made = designer.create(builder, num_records=calls)
print(json.dumps({"answered": len(made.load_dataset())}))
"""

QUIET = {
    "OPENAI_API_KEY": "none", "HF_HUB_OFFLINE": "1", "TELEMETRY_ENABLED": "0", "NEMO_TELEMETRY_ENABLED": "false",
    "CURATOR_DISABLE_CACHE": "1", "CURATOR_VIEWER": "0", "CURATOR_DISABLE_RICH_DISPLAY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}  # fmt: skip
"""For the peers: nothing is looked up, kept or sent anywhere but to the endpoint."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A run against an endpoint that fails or has limits.")
    parser.add_argument("--curator", metavar="PYTHON", help="a Python that has bespokelabs-curator")
    parser.add_argument("--data-designer", metavar="PYTHON", help="a Python that has data-designer")
    options = parser.parse_args()
    sides = {"kernelmill": "", "plain": sys.executable}
    sides |= {"curator": options.curator} if options.curator else {}
    sides |= {"data-designer": options.data_designer} if options.data_designer else {}
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "evals.jsonl"
        write_evals(source, CALLS, code_bytes=3000, row_bytes=4500)
        for endpoint, flags in ENDPOINTS.items():
            for side, python in sides.items():
                with server(LATENCY, *REPLY, "--retry-after", f"{RETRY_AFTER:g}", *flags) as base_url:
                    home = Path(folder) / f"{endpoint} {side}"
                    home.mkdir()
                    answered = (
                        _ours(source, home, base_url)
                        if not python
                        else _peer(side, python, source, home, base_url)
                    )
                    stats = _stats(base_url)
                results.setdefault(endpoint, {})[side] = _figures(endpoint, stats, answered)
                print(endpoint, side, results[endpoint][side], flush=True)
    faults = _faults(results)
    versions = {
        side: _versions(python) for side, python in sides.items() if side in ("curator", "data-designer")
    }
    save(
        "llm_pushback",
        {
            "calls": CALLS, "concurrency": CONCURRENCY, "latency_s": LATENCY, "retry_after_s": RETRY_AFTER, "faults": FAULTS,
            "peers": versions, "endpoints": results, "not_met": faults,
        },
    )  # fmt: skip
    if faults:
        sys.exit("NOT MET: " + "; ".join(faults))


def _ours(source: Path, home: Path, base_url: str) -> int:
    output = home / "rows.jsonl"
    line = [
        sys.executable,
        "-m",
        "kernelmill",
        "rate",
        str(source),
        "-o",
        str(output),
        "--base-url",
        base_url,
    ]
    subprocess.run([*line, "--model", "fake", "-c", str(CONCURRENCY)], check=True, capture_output=True)
    rows: int = json.loads(output.with_name("rows.manifest.json").read_text())["rows"]["out"]
    return rows


def _peer(side: str, python: str, source: Path, home: Path, base_url: str) -> int | None:
    """How many answers the peer has in the end; None where it ended with an error or took ten minutes."""
    script = {"plain": PLAIN, "curator": CURATOR, "data-designer": DATA_DESIGNER}[side]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "DATA_DESIGNER_HOME": str(home), **QUIET}
    line = [python, "-c", script, str(source), base_url, str(CONCURRENCY)]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, env=environment, cwd=home)
        answered: int = json.loads(done.stdout.splitlines()[-1])["answered"]
        return answered
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        return None


def _stats(base_url: str) -> dict[str, Any]:
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/fake/stats") as answer:
        stats: dict[str, Any] = json.load(answer)
    return stats


def _figures(endpoint: str, stats: dict[str, Any], answered: int | None) -> dict[str, Any]:
    behaved, calls = stats["behaved"], stats["calls"]
    over = behaved.get("limited", 0)
    allowed = _allowed(endpoint, stats)
    return {
        "seconds": round(stats["seconds"], 2),
        "allowed_s": round(allowed, 2),
        "times_allowed": round(stats["seconds"] / allowed, 2),
        "answered": answered,
        "calls": calls,
        "refused": over + behaved.get("429-retry-after", 0),
        "over_limit_after_first_burst": round(max(0, over - 2 * CONCURRENCY) / calls, 4),
    }


def _allowed(endpoint: str, stats: dict[str, Any]) -> float:
    """Seconds that the endpoint makes it take for whoever asks as well as possible."""
    if endpoint == "100 a second":
        return CALLS / 100 - 1 + LATENCY
    at_once = 16 if endpoint == "16 at once" else CONCURRENCY
    slow = stats["calls"] - sum(
        stats["behaved"].get(kind, 0) for kind in ("429-retry-after", "500", "limited")
    )
    replay = FakeEndpoint(script=FAULTS if endpoint == "20% fail" else ())
    waits = {"429-retry-after": RETRY_AFTER, "500": 0.0}
    chains = [
        sum(waits.get(replay.choose(key, 0, attempt), LATENCY) for attempt in range(times))
        for key, times in stats["asked"].items()
    ]
    return float(max(slow * LATENCY / at_once, *chains))


def _faults(results: dict[str, dict[str, Any]]) -> list[str]:
    quick = results["no faults"]["kernelmill"]["seconds"]
    found = []
    for endpoint, sides in results.items():
        ours = sides["kernelmill"]
        reachable = max(ours["allowed_s"], quick * ours["calls"] / CALLS)
        if endpoint != "no faults" and ours["seconds"] > 2 * reachable:
            found.append(f"{endpoint}: {ours['seconds']} s, more than twice {reachable:.1f} s")
        if ours["answered"] != CALLS:
            found.append(f"{endpoint}: {ours['answered']} of {CALLS} answered")
        if ours["over_limit_after_first_burst"] > 0.1:
            found.append(f"{endpoint}: too many calls over the limit")
    return found


def _versions(python: str) -> str:
    code = "import importlib.metadata as m; print(*(f'{d.name} {d.version}' for d in m.distributions() if d.name in ('bespokelabs-curator', 'data-designer')))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
