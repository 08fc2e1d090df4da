"""Build the dataset card from the facts of a run: `README.md` with the Hub's metadata, and its plots.

The same facts give the same bytes: nothing depends on the clock, local paths or the order of a set. Unknown
facts are stated as unknown (`card.words`), or the template omits their section. Values from rows and
manifests are escaped by `card.markdown`, so that they can break neither the tables nor the metadata.
"""

from __future__ import annotations

import json
from typing import Any

from kernelmill.base.bar_chart import svg_bars
from kernelmill.curate.difficulty import LEVELS
from kernelmill.errors import ConfigError
from kernelmill.publish.card import tables, words
from kernelmill.publish.card.facts import CardFacts
from kernelmill.publish.card.markdown import Markdown, environment, listed, one_line, text

_SIZES = ["n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B"]
UNKNOWN_LICENSE = "unknown"
"""The Hub's identifier for an unknown licence."""


def make_card(facts: CardFacts) -> dict[str, bytes]:
    """The files of the card by their paths inside the dataset: `README.md`, and `assets/….svg` for each plot.

    Raises `ConfigError` where the length report is for a different number of rows.
    """
    if facts.lengths is not None and facts.lengths.rows != facts.counts.rows:
        raise ConfigError(
            f"the report of lengths is of {facts.lengths.rows:,} rows, but {facts.counts.rows:,} are published: "
            "make it again with kernelmill lengths --json"
        )
    plots = _plots(facts)
    body = environment.get_template("card.md.jinja").render(_values(facts, set(plots)))
    readme = f"---\n{_metadata(facts)}\n---\n\n{body}"
    files = {"README.md": readme, **{f"assets/{name}.svg": plot for name, plot in plots.items()}}
    return {name: content.encode() for name, content in files.items()}


def _metadata(facts: CardFacts) -> str:
    """The YAML metadata: what the Hub displays and filters by, and the files of each split."""
    from huggingface_hub import DatasetCardData

    rows = sum(split.rows for split in facts.splits)
    first = (facts.lineage[0].get("source") or {}) if facts.lineage else facts.source
    tags = ["triton", "pytorch", "gpu-kernels", "code-generation", "kernelmill"]
    data = DatasetCardData(
        pretty_name=one_line(facts.name),
        license=one_line(facts.license or UNKNOWN_LICENSE).lower(),
        language=["code"],
        task_categories=["text-generation"],
        size_categories=[_SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]],
        tags=tags,
        source_datasets=[one_line(first["repo"])] if first.get("kind") == "hub" and "repo" in first else None,
        configs=[
            {
                "config_name": "default",
                "data_files": [
                    {"split": split.name, "path": _one_or_list(split.files)} for split in facts.splits
                ],
            }
        ],
    )
    order = [
        "pretty_name",
        "license",
        "language",
        "task_categories",
        "size_categories",
        "tags",
        "source_datasets",
    ]
    return data.to_yaml(original_order=order)


def _one_or_list(files: tuple[str, ...]) -> str | list[str]:
    return files[0] if len(files) == 1 else list(files)


def _plots(facts: CardFacts) -> dict[str, str]:
    """The charts for which there are numbers, as SVG by name."""
    counts, plots = facts.counts, {}
    if counts.rewards:
        bars = tables.buckets(counts.rewards, tables.REWARD_EDGES)
        plots["rewards"] = svg_bars(
            "Rows by reward", bars, "a reward on a bound belongs to the bar that ends there"
        )
    if counts.difficulties:
        known = [level for level in LEVELS if level in counts.difficulties]
        others = sorted(set(counts.difficulties) - set(LEVELS))[: tables.MOST_ROWS]
        bars = [(one_line(level, 40), counts.difficulties[level]) for level in (*known, *others)]
        plots["difficulty"] = svg_bars("Rows by difficulty", bars)
    title, bars = _lengths(facts)
    if bars:
        plots["lengths"] = svg_bars(title, bars)
    return plots


def _lengths(facts: CardFacts) -> tuple[str, list[tuple[str, int]]]:
    """Title and bars of the length chart: in tokens if they were counted, else in characters."""
    counts, report = facts.counts, facts.lengths
    if report is not None:
        return "Rows by tokens", [(bucket.label, bucket.rows) for bucket in report.buckets]
    what, lengths = (
        ("completion", counts.completion_chars)
        if counts.completion_chars
        else ("prompt", counts.prompt_chars)
    )
    return f"Rows by length of the {what}, in characters", tables.buckets(lengths, tables.CHARACTER_EDGES)


def _values(facts: CardFacts, plots: set[str]) -> dict[str, Any]:
    counts = facts.counts
    load_from = facts.repo or f"path/to/{facts.name}"
    commands = words.commands(facts)
    return {
        "name": text(facts.name),
        "what": words.what(facts),
        "size": words.size(facts),
        "version": text(facts.version),
        "load_from": _in_code(load_from),
        "on_hub": facts.repo is not None,
        "split_names": listed([_in_code(split.name) for split in facts.splits]),
        "splits": [_in_code(split.name) for split in facts.splits if split.name.isidentifier()],
        "splits_table": tables.splits_table(facts),
        "columns_table": tables.columns_table(facts),
        "json_columns": words.json_columns(facts),
        "json_column": next((_in_code(column.name) for column in facts.columns if column.json), None),
        "source": words.source(facts),
        "stages_table": tables.stages_table(facts.lineage) if facts.lineage else None,
        "stage_notes": words.stage_notes(facts),
        "models_table": tables.models_table(facts.lineage),
        "writers": words.writers(facts),
        "has_completions": bool(counts.completion_chars),
        "reward": words.reward(facts),
        "reward_table": tables.bars_table("reward", tables.buckets(counts.rewards, tables.REWARD_EDGES)),
        "evaluators": tables.counts_table("evaluator", counts.evaluators, counts.rows),
        "devices": tables.counts_table("hardware", counts.devices, counts.rows),
        "difficulty": words.difficulty(facts),
        "difficulty_table": tables.counts_table("difficulty", counts.difficulties, counts.rows, LEVELS),
        "lengths": words.lengths(facts),
        "lengths_table": tables.lengths_table(facts),
        "lengths_plot": "lengths" in plots,
        "licence": words.licence(facts),
        "source_licences": words.source_licences(facts),
        "licences_table": tables.counts_table("licence", counts.licences, counts.rows),
        "split_policy": words.split_policy(facts),
        "leakage": words.leakage(facts),
        "benchmarks": words.benchmarks(facts),
        "limits": words.limits(facts),
        "commands": [Markdown(command) for command in commands],
        "rebuild": words.rebuild(facts),
        "versions": words.versions(facts),
    }


def _in_code(value: str) -> Markdown:
    """Escape a value for use inside a string in a Python code block."""
    return Markdown(json.dumps(one_line(value), ensure_ascii=False)[1:-1])
