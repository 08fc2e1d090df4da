"""`/` and `/docs`: what this service is and how to call it, for a person with a browser.

The pages are self-contained: no external script, style sheet or image. They reveal nothing about requests or
the machine. The fields are read from `bodies`, so they cannot be out of date.
"""

from __future__ import annotations

import html
from typing import Any

from pydantic import BaseModel

from kernelmill.evaluate.options import environment
from kernelmill.serve.bodies import BatchRequest, EvaluateRequest, KernelBenchRequest

ENDPOINTS = {
    "POST /evaluate": "One candidate: its whole verdict, and a reward.",
    "POST /evaluate/batch": "Many candidates: a list of verdicts, or a line for each as it comes "
    "(Accept: application/x-ndjson).",
    "POST /eval": "The same by the contract of slime and TritonForge.",
    "GET /health": "200 when the service takes work, 503 while it starts or stops.",
    "GET /metrics": "Counts, in Prometheus' text format.",
    "GET /openapi.json": "The schema of all requests.",
    "GET /docs": "The fields of requests and answers, and the errors.",
}
_ANSWER = {
    "verdict": "correct, incorrect, hack (it only looks as if it computed the function) or inconclusive (nobody knows)",
    "status": "what happened: PASSED, COMPILE_ERROR, INCORRECT_NUMERICAL, HACK, …",
    "reward": "a number, or null: leave this sample out",
    "feedback": "what to tell the model that wrote it, under 40 lines",
    "checks": "everything that was tried, with what was found",
    "perf": "times and speed-up, where there is a GPU",
}
_ERRORS = {
    "401": "no token, or not the right one: send Authorization: Bearer TOKEN",
    "408": "the headers or the body came too slowly",
    "413": "the body or the batch is too large",
    "422": "a field is missing, unknown or of the wrong type; `error` names it",
    "429": "the queue is full: come again after Retry-After seconds",
    "503": "the service is starting or stopping, or (in /eval) has trouble of its own: ask again",
}
_EXAMPLE = """\
curl -s {url}/evaluate -H 'Content-Type: application/json' \\
  -d '{"reference": "class Model(nn.Module): ...", "candidate": "class ModelNew(nn.Module): ..."}'"""
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{background:#f4f4f4;padding:.8rem;overflow:auto}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
)


def overview() -> str:
    """Render `/`."""
    parts = [
        "<p>Says whether a Triton kernel computes what a PyTorch module does, and gives a reward for it. Candidates are run "
        "apart from the comparison, in processes of their own; a verdict is <code>correct</code>, <code>incorrect</code>, "
        "<code>hack</code> or <code>inconclusive</code>, with reasons.</p>",
        _table(ENDPOINTS),
        "<h2>Ask it</h2>",
        f"<pre>{html.escape(_EXAMPLE.replace('{url}', 'http://HOST:PORT'))}</pre>",
        "<p>With a token: <code>-H 'Authorization: Bearer TOKEN'</code>. All fields are in <a href='docs'>docs</a>.</p>",
    ]
    return _page("kernelmill serve", parts)


def reference(reward: str) -> str:
    """Render `/docs`. `reward` is the default reward of responses."""
    parts = ["<p><a href='.'>What this service is</a></p>"]
    for endpoint, body in (
        ("POST /evaluate", EvaluateRequest),
        ("POST /evaluate/batch", BatchRequest),
        ("POST /eval", KernelBenchRequest),
    ):
        parts += [f"<h2>{endpoint}</h2>", f"<p>{html.escape(ENDPOINTS[endpoint])}</p>", _fields(body)]
    parts += [
        "<h2>The answer</h2>",
        f"<p>The reward is <code>{html.escape(reward)}</code>, where a request names no other.</p>",
        _table(_ANSWER),
        "<h2>Errors</h2>",
        "<p>A JSON object with one line in <code>error</code>.</p>",
        _table(_ERRORS),
    ]
    return _page("kernelmill serve: requests and answers", parts)


def _fields(body: type[BaseModel]) -> str:
    rows = {}
    for name, field in body.model_fields.items():
        need = "required" if field.is_required() else f"default: {_value(field.default)}"
        rows[name] = f"{field.description or ''} ({need})".strip()
    return _table(rows)


def _value(default: Any) -> str:
    return "none" if default is None else str(default).lower() if isinstance(default, bool) else str(default)


def _table(rows: dict[str, str]) -> str:
    lines = [
        f"<tr><td><code>{html.escape(k)}</code></td><td>{html.escape(v)}</td></tr>" for k, v in rows.items()
    ]
    return f"<table>{''.join(lines)}</table>"


def _page(title: str, parts: list[str]) -> str:
    version = html.escape(str(environment()["evaluator"]))
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{_STYLE}</style>"
        f"<h1>{title}</h1>{''.join(parts)}<p>kernelmill {version}</p></html>"
    )
