"""The tables of a dataset card, each built from the facts it shows.

Contains no sentences: see `card.words`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from kernelmill.base.columns import CONTAMINATED, FORMATS, pattern_of
from kernelmill.curate.length_report import PERCENTILES as PERCENTILES_OF_TOKENS
from kernelmill.curate.length_report import percentile
from kernelmill.publish.card.facts import OTHERS, CardFacts
from kernelmill.publish.card.markdown import Markdown, code, listed, table, text
from kernelmill.publish.rebuild import PRIVATE_URL, asked_a_model, file_name, public_url, source_name

REWARD_EDGES = (0, 0.25, 0.5, 0.85, 1, 1.5, 2, 3, 5, 10)
CHARACTER_EDGES = tuple(1000 * 2**n for n in range(9))
PERCENTILES = (50, 75, 90, 95, 99, 100)
MOST_REASONS, MOST_ROWS = 3, 20

_LEAKAGE = {
    "groups_on_both_sides": "groups on both sides",
    "modules": "different modules",
    "groups": "groups of modules",
    "validation_groups": "groups in validation",
    "validation_rows": "rows in validation",
    "validation_modules": "modules in validation",
    "validation_modules_close_to_train": "modules in validation that come close to one in train",
}


def splits_table(facts: CardFacts) -> Markdown:
    total = sum(split.rows for split in facts.splits)
    return table(
        ("split", "rows", "share"),
        [(code(split.name), split.rows, _share(split.rows, total)) for split in facts.splits],
    )


def columns_table(facts: CardFacts) -> Markdown:
    lines = [
        (
            code(column.name),
            code(f"{column.type} (JSON)" if column.json else column.type, 200),
            _column(column.name, facts.kind),
        )
        for column in facts.columns
    ]
    # Omit the third column for formats without descriptions.
    width = 3 if any(words for _, _, words in lines) else 2
    return table(("column", "type", "what it holds")[:width], [line[:width] for line in lines])


def _column(name: str, kind: str) -> Markdown:
    """The meaning of a column; empty if it is none of ours."""
    name = pattern_of(name)
    if kind == "other" and not name.startswith(CONTAMINATED):
        return Markdown("")  # may have the same name but another meaning
    # The format's own meaning comes first: a specification has another `writer` than an answer.
    columns = (*FORMATS.get(kind, ()), *FORMATS["evals"], *FORMATS["synthetic"], *FORMATS["KernelBook"])
    return Markdown(next((column.meaning for column in columns if column.name == name), ""))


def stages_table(lineage: Sequence[Mapping[str, Any]]) -> Markdown:
    lines = []
    for manifest in lineage:
        rows = manifest.get("rows") or {}
        lines.append(
            (
                code(f"kernelmill {manifest.get('stage')}"),
                *(_number(rows.get(name)) for name in ("in", "out", "rejected")),
                _reasons(rows.get("reasons") or {}),
            )
        )
    return table(("stage", "rows in", "rows out", "rejected", "main reasons"), lines)


def _number(value: object) -> Markdown | int:
    return value if isinstance(value, int) and not isinstance(value, bool) else Markdown("not recorded")


def _reasons(reasons: Mapping[str, int]) -> Markdown:
    most = Counter(reasons).most_common()
    shown = [f"{text(reason)} ({number:,})" for reason, number in most[:MOST_REASONS]]
    if others := most[MOST_REASONS:]:
        shown.append(f"{len(others)} other kinds ({sum(number for _, number in others):,})")
    return Markdown("; ".join(shown))


def models_table(lineage: Sequence[Mapping[str, Any]]) -> Markdown | None:
    """The stages that had rows answered, and by which model or program; None where there are none."""
    lines = []
    for manifest in lineage:
        if (by := manifest.get("by")) is None:
            continue
        config, model = manifest.get("config") or {}, asked_a_model(manifest)
        endpoint = public_url(config.get("base_url"))
        lines.append(
            (
                code(f"kernelmill {manifest.get('stage')}"),
                _who(str(by)),
                (text("a private one") if endpoint == PRIVATE_URL else code(endpoint))
                if model
                else text("–"),
                _sampling(config.get("sampling")) if model else text("–"),
                _prompts(manifest.get("prompts") or {}) if model else text("–"),
            )
        )
    return table(("stage", "model", "endpoint", "sampling", "prompt (sha256)"), lines) if lines else None


def _who(by: str) -> Markdown:
    if by == "static":
        return text("program analysis, no model")
    return code(by.removeprefix("llm:")) if by.startswith("llm:") else Markdown(f"{code(by)}, no model")


def _sampling(sampling: object) -> Markdown:
    chosen = sampling.items() if isinstance(sampling, Mapping) else ()
    shown = [code(f"{name}={value}") for name, value in chosen if value not in (None, {})]
    return listed(shown, "and") if shown else text("the server's defaults")


def _prompts(prompts: Mapping[str, str]) -> Markdown:
    shown = [f"{code(file_name(name))} ({code(sha)})" for name, sha in sorted(prompts.items())]
    return listed(shown) if shown else text("not recorded")


def counts_table(head: str, counter: Counter[str], rows: int, order: Sequence[str] = ()) -> Markdown | None:
    """Number of rows per value: the values in `order` first, then the others by frequency; None for no value."""
    if not counter:
        return None
    values = [(value, counter[value]) for value in order if value in counter]
    rest = [(value, n) for value, n in counter.items() if value not in order and value != OTHERS]
    values += sorted(rest, key=lambda pair: (-pair[1], pair[0]))
    shown, hidden = values[:MOST_ROWS], values[MOST_ROWS:]
    lines = [(code(value), number, _share(number, rows)) for value, number in shown]
    if others := counter[OTHERS] + sum(number for _, number in hidden):
        lines.append((text("all others"), others, _share(others, rows)))
    return table((head, "rows", "share"), lines)


def bars_table(head: str, bars: Sequence[tuple[str, int]]) -> Markdown | None:
    total = sum(number for _, number in bars)
    lines = [(Markdown(label), number, _share(number, total)) for label, number in bars]
    return table((head, "rows", "share"), lines) if lines else None


def buckets(values: Sequence[float], edges: Sequence[float]) -> list[tuple[str, int]]:
    """Number of values between the edges.

    A value on an edge counts below it. Empty buckets at the ends are omitted.
    """
    found = Counter(bisect_left(edges, value) for value in values)
    if not found:
        return []
    labels = [f"up to {edges[0]:,}"]
    labels += [f"{low:,} to {high:,}" for low, high in pairwise(edges)]
    labels.append(f"over {edges[-1]:,}")
    return [(labels[at], found[at]) for at in range(min(found), max(found) + 1)]


def lengths_table(facts: CardFacts) -> Markdown | None:
    """Percentiles of lengths, in tokens with recommended `seq_len`, or in characters; None without texts.

    Characters are used where tokens were not counted.
    """
    if facts.lengths is None:
        return _characters_table(facts)
    report = facts.lengths
    head = ("", *(f"{name}%" if name != "100" else "longest" for name in PERCENTILES_OF_TOKENS))
    lines: list[list[Markdown | int]] = [
        [Markdown("tokens"), *(report.percentiles[name] for name in PERCENTILES_OF_TOKENS)]
    ]
    fitting = [
        (text(f"{best.coverage}%"), best.seq_len, best.rows_over, best.answers_cut)
        for best in report.recommended
    ]
    recommended = table(("rows that fit, at the least", "`seq_len`", "rows over", "answers cut"), fitting)
    return Markdown(f"{table(head, lines)}\n\n{recommended}")


def _characters_table(facts: CardFacts) -> Markdown | None:
    counts = facts.counts
    parts = [("prompt", counts.prompt_chars), ("completion", counts.completion_chars)]
    lines: list[list[Markdown | int]] = [
        [code(name), *(percentile(sorted(values), str(percent)) for percent in PERCENTILES)]
        for name, values in parts
        if values
    ]
    head = ("", *(f"{percent}%" if percent < 100 else "longest" for percent in PERCENTILES))
    return table(head, lines) if lines else None


def benchmarks_table(manifests: Sequence[Mapping[str, Any]]) -> Markdown:
    """The benchmarks, and how many rows of the stage's input contain a problem of each."""
    lines = []
    for manifest in manifests:
        for name, found in (manifest.get("benchmarks") or {}).items():
            rows = found.get("rows") or {}
            lines.append(
                (
                    code(name),
                    code(source_name(found.get("source") or {})),
                    code(found.get("sha256", "not recorded")),
                    _number(found.get("problems")),
                    _number(rows.get("same_code")),
                    _number(rows.get("n_grams")),
                    _number(found.get("problems_hit")),
                )
            )
    head = (
        "benchmark",
        "source",
        "sha256",
        "problems",
        "rows with the same code",
        "rows with its n-grams",
        "problems found",
    )
    return table(head, lines)


def leakage_table(found: Mapping[str, Any]) -> Markdown:
    lines = [(text(words), _number(found[name])) for name, words in _LEAKAGE.items() if name in found]
    return table(("leakage report", ""), lines)


def neighbours_table(nearest: Sequence[Mapping[str, Any]]) -> Markdown:
    """Validation modules and their nearest train modules, the most similar first."""
    shown = [
        (code(pair.get("validation")), code(pair.get("train")), _share_of(pair.get("alike")))
        for pair in nearest[:MOST_ROWS]
    ]
    more = (
        f"\n\n{len(nearest) - MOST_ROWS:,} more are in `kernelmill.json`." if len(nearest) > MOST_ROWS else ""
    )
    return Markdown(table(("validation", "nearest in train", "code in common"), shown) + more)


def _share_of(value: object) -> Markdown:
    return Markdown(f"{value:.0%}") if isinstance(value, float | int) else Markdown("–")


def _share(number: int, total: int) -> Markdown:
    return Markdown(f"{number / total:.1%}" if total else "–")
