"""The sentences of a dataset card that depend on the facts.

Unknown facts are stated as unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelmill.curate.length_report import LengthReport
from kernelmill.publish.card.facts import CardFacts
from kernelmill.publish.card.markdown import Markdown, code, listed, text
from kernelmill.publish.card.tables import (
    MOST_ROWS,
    benchmarks_table,
    leakage_table,
    neighbours_table,
)
from kernelmill.publish.rebuild import PRIVATE_URL, asked_a_model, command_of, file_name

_EVALS = "PyTorch modules, answers that write each of them in Triton, and the reward of each answer."
_WHAT = {
    "raw": _EVALS,
    "filtered": f"{_EVALS} Rows were kept by their reward, and each says how hard its task is.",
    "unique": f"{_EVALS} Of each module, only the best row was kept.",
    "synthetic": "Task specifications in words, one for each PyTorch module, for a model to write the module in Triton.",
    "other": "Rows in a format that is none of those kernelmill makes.",
}
MOST_TASKS = 5
_SAME = {
    "name": "the same name",
    "structure": "the same code, whatever its names and formatting",
    "near": "the same or nearly the same code, whatever its names and formatting",
}


def stage_of(facts: CardFacts, name: str) -> Mapping[str, Any] | None:
    """The manifest of the last stage with this name."""
    return next((manifest for manifest in reversed(facts.lineage) if manifest.get("stage") == name), None)


def setting_of(manifest: Mapping[str, Any] | None, name: str) -> Any:
    return (manifest.get("config") or {}).get(name) if manifest else None


def what(facts: CardFacts) -> Markdown:
    words = _WHAT[facts.kind]
    if facts.no_reasoning:
        kept = setting_of(stage_of(facts, "strip"), "style") == "reasoning_content"
        thoughts = "stand in a field of their own, `reasoning_content`" if kept else "are taken out"
        words += f" Every assistant message is reduced to its answer; the thoughts {thoughts}."
    return Markdown(words)


def size(facts: CardFacts) -> Markdown:
    rows, modules = sum(split.rows for split in facts.splits), facts.counts.modules
    names = f", {modules:,} module {'name' if modules == 1 else 'names'}" if modules else ""
    tasks = facts.counts.tasks.most_common()
    shown = [f"{code(task)} ({number:,})" for task, number in tasks[:MOST_TASKS]]
    shown += [f"{len(tasks) - MOST_TASKS:,} others"] if len(tasks) > MOST_TASKS else []
    of_tasks = f"; rows by task: {', '.join(shown)}" if shown else ""
    return Markdown(f"{rows:,} {'row' if rows == 1 else 'rows'}{names}{of_tasks}")


def json_columns(facts: CardFacts) -> Markdown | None:
    """A note on the columns of JSON text; None where there are none."""
    names = [code(column.name) for column in facts.columns if column.json]
    if not names:
        return None
    holds = "holds" if len(names) == 1 else "hold"
    return Markdown(
        f"{listed(names)} {holds} JSON text, null where a row has no value: the keys inside differ from row to row, and the "
        "columns of two datasets keep the same types."
    )


def source(facts: CardFacts) -> Markdown:
    """The source of the first stage, and what was published."""
    first = (facts.lineage[0].get("source") or {}) if facts.lineage else facts.source
    words = [f"The source is {_origin(first)}."]
    if facts.lineage:
        words.append(f"Published is what the last stage below wrote: {_origin(facts.source)}.")
    return Markdown(" ".join(words))


def _origin(origin: Mapping[str, Any]) -> str:
    kind, sha = origin.get("kind"), origin.get("sha256")
    hashed = f", sha256 of its rows {code(sha)}" if sha else ""
    if kind == "hub":
        revision = origin.get("revision")
        at = f" at revision {code(revision)}" if revision else ", at a revision that is not recorded"
        parts = [code(name) for name in origin.get("splits") or []]
        of = f" (splits: {listed(parts)})" if parts else ""
        return f"the dataset {code(origin.get('repo'))} on the Hugging Face Hub{at}{of}{hashed}"
    if kind == "bundled":
        return f"{code(origin.get('path'))}, which ships with kernelmill{hashed}"
    if not origin.get("path"):
        return "a source that is not recorded"
    noun = "folder" if kind == "folder" else "file"
    return f"the local {noun} {code(file_name(origin['path']))}{hashed or ', whose hash is not recorded'}"


def stage_notes(facts: CardFacts) -> list[Markdown]:
    """What a stage did, where the reasons in the table do not say it."""
    notes = []
    if (threshold := setting_of(stage_of(facts, "rate"), "threshold")) is not None:
        notes.append(Markdown(f"`rate` kept the rows with a reward above {text(threshold)}."))
    if (by := setting_of(unique := stage_of(facts, "unique"), "by")) is not None:
        share = setting_of(unique, "similarity")
        near = f" (a share of {text(share)} of it or more)" if by == "near" and share is not None else ""
        same = _SAME.get(str(by)) or text(by)
        notes.append(
            Markdown(
                f"`unique` kept the row with the best reward of all that have {same}{near}; of equals, the first."
            )
        )
    if (style := setting_of(stage_of(facts, "strip"), "style")) is not None:
        notes.append(
            Markdown(f"`strip` reduced every assistant message to its answer, in the style {code(style)}.")
        )
    return notes


def reward(facts: CardFacts) -> Markdown:
    counts = facts.counts
    if not counts.rewards:
        return Markdown("The rows have no reward.")
    if counts.evaluators:
        words = (
            "The rows carry the verdict of an evaluator (column `verdict`), from which `reward` was computed."
        )
    else:
        words = (
            "`reward` came with the rows of the source. Its producer measured it; how it is defined is not recorded in the rows, "
            "and it was not measured again."
        )
    if missing := counts.rows - len(counts.rewards):
        words += f" Rows without one: {missing:,}."
    return Markdown(f"{words} From {min(counts.rewards):.4g} to {max(counts.rewards):.4g}:")


def difficulty(facts: CardFacts) -> Markdown:
    raters = sorted(facts.counts.raters)
    if not raters:
        return Markdown("Who rated the difficulty is not recorded in the rows.")
    ours = all(rater == "static" or rater.startswith("llm:") for rater in raters)
    alone = ", from the module alone: the answer and its reward were not looked at" if ours else ""
    return Markdown(f"Rated by {listed([_rater(rater) for rater in raters[:MOST_ROWS]])}{alone}.")


def _rater(rater: str) -> str:
    if rater == "static":
        return "program analysis (`static`)"
    return f"a model ({code(rater.removeprefix('llm:'))})" if rater.startswith("llm:") else code(rater)


def writers(facts: CardFacts) -> Markdown | None:
    """Who wrote the answers or specifications, or that it is unknown; None where the rows have neither."""
    if found := sorted(facts.counts.writers):
        what = "answers" if facts.counts.completion_chars else "specifications"
        return Markdown(f"The {what} were written by {listed([_rater(name) for name in found[:MOST_ROWS]])}.")
    if facts.counts.completion_chars:
        return Markdown(
            "Who or which model wrote the answers is not recorded in the rows; look at their source."
        )
    return None


def licence(facts: CardFacts) -> Markdown:
    if facts.license:
        return Markdown(f"The publisher declares {code(facts.license)} for the dataset as a whole.")
    return Markdown("The publisher declared no licence for the dataset as a whole.")


def source_licences(facts: CardFacts) -> Markdown:
    counts = facts.counts
    if not counts.with_licences:
        return Markdown(
            "The rows carry no licence of their own: the licence of the source applies to the code in them. "
            "Look it up there before you use them."
        )
    missing = counts.rows - counts.with_licences
    rest = f" Rows that carry none: {missing:,}." if missing else ""
    return Markdown(f"Licences of the repositories that the modules come from, as the rows carry them.{rest}")


def lengths(facts: CardFacts) -> Markdown:
    if facts.lengths is not None:
        return _in_tokens(facts.lengths)
    if not (facts.counts.prompt_chars or facts.counts.completion_chars):
        return Markdown("Not measured: the rows have neither a prompt nor a completion.")
    thoughts = ""
    if facts.counts.completion_chars:
        number = facts.counts.with_thoughts
        thoughts = f" Rows with thoughts in the completion: {number:,}." + (
            " They are counted." if number else ""
        )
    return Markdown(
        "In characters, not tokens, of all messages together, without a chat template "
        f"(`kernelmill lengths` counts tokens).{thoughts}"
    )


def _in_tokens(report: LengthReport) -> Markdown:
    name, revision = str(report.tokenizer.get("name")), report.tokenizer.get("revision")
    template = report.tokenizer.get("template_sha256")
    about = [f"revision {code(revision)}"] if revision else []
    about += [f"template sha256 {code(template)}"] if template else []
    if report.tokenizer.get("kind") == "folder":
        name = file_name(name)
    words = [
        f"In tokens, under the chat template of {code(name)}{f' ({listed(about)})' if about else ''}.",
        f"{report.tokens:,} tokens in all.",
    ]
    if report.reasoning == "drop":
        words.append("Thoughts are left out.")
    else:
        words.append(f"Thoughts are counted; rows that have some: {report.tally.with_thoughts:,}.")
    if report.tally.thoughts_left_out:
        words.append(
            f"In {report.tally.thoughts_left_out:,} of them the template leaves the thoughts out: they are not in the count."
        )
    return Markdown(" ".join(words))


def split_policy(facts: CardFacts) -> Markdown:
    policy = facts.split_policy or {}
    how, seed = policy.get("split"), text(policy.get("seed"))
    if len(facts.splits) == 1 and how in (None, "none"):
        return Markdown(f"All rows are in one split, {code(facts.splits[0].name)}.")
    if how == "rows":
        return Markdown(
            f"By row: {_percent(policy.get('validation_share'))} of the rows were drawn by chance (seed {seed}), as "
            "`train_test_split` of `datasets` does it. Rows of one module may be on both sides, and no leakage report was made."
        )
    if how == "source":
        return Markdown(
            f"As in {code(policy.get('of'))}, from which the rows were made: each is on the side on which it is there."
        )
    if how == "groups":
        return _by_group(policy, seed)
    return Markdown("How the rows were split is not recorded.")


def _by_group(policy: Mapping[str, Any], seed: Markdown) -> Markdown:
    words = [
        "By group. A group is all rows whose module is the same code or nearly the same (a share of "
        f"{text(policy.get('similarity'))} of it or more), whatever it is called; it is on one side as a whole.",
        "The side of a group is drawn from the code of one of its modules, the one with the smallest hash under "
        f"the seed {seed}, with a chance of {_percent(policy.get('validation_share'))} for validation. So the order of the rows "
        "does not matter; a module that joins a group can change the group's side.",
    ]
    if origins := [code(name) for name in policy.get("groups_from") or []]:
        words.append(
            f"The groups are those of {listed(origins)}, so that all sets made from it are split alike."
        )
    return Markdown(" ".join(words))


def leakage(facts: CardFacts) -> Markdown | None:
    """The leakage report: groups on both sides, and validation modules that are close to train modules."""
    if not (found := facts.leakage):
        return None
    close = f"{_percent(found.get('close'))} or more of its code in common"
    if not (nearest := found.get("nearest")):
        return Markdown(f"{leakage_table(found)}\n\nNo validation module has {close} with a train module.")
    return Markdown(
        f"{leakage_table(found)}\n\nValidation modules that have {close} with a train module, each with the nearest:\n\n"
        f"{neighbours_table(nearest)}"
    )


def _percent(share: object) -> Markdown:
    return text(f"{share * 100:g}%" if isinstance(share, int | float) else "a share that is not recorded")


def benchmarks(facts: CardFacts) -> Markdown:
    ran = [manifest for manifest in facts.lineage if manifest.get("stage") == "decontaminate"]
    if not ran:
        return Markdown(
            "The rows were not compared with any benchmark (`kernelmill decontaminate` was not run): "
            "problems of KernelBench or others may be among them."
        )
    dropped = [bool(setting_of(manifest, "drop")) for manifest in ran]
    if all(dropped):
        then = "Rows that hold a problem were dropped."
    elif any(dropped):
        then = "Rows that hold a problem were dropped, or are marked in the columns `contaminated_…`."
    else:
        then = "Rows that hold a problem are marked in the columns `contaminated_…`, not dropped."
    shares = sorted({text(setting_of(manifest, "share")) for manifest in ran})
    return Markdown(
        "`decontaminate` compared the module of every row, not its prompt or answer, with these problems. A row holds a problem "
        f"where the code is the same, or where a share of {listed(shares)} or more of the problem's n-grams (runs of operations) "
        f"is in it. {then}\n\n{benchmarks_table(ran)}"
    )


def rebuild(facts: CardFacts) -> Markdown:
    words = ["Files are called by their names alone; put each where you like."]
    if any(asked_a_model(manifest) for manifest in facts.lineage):
        words.append("A model that is asked again may answer otherwise, and then other rows come out.")
    if any(f" {PRIVATE_URL}" in line for line in commands(facts)):
        words.append(f"`{PRIVATE_URL}` stands for an endpoint of your own that serves the model.")
    return Markdown(" ".join(words))


def commands(facts: CardFacts) -> list[str]:
    """The commands of all stages and of `publish`, into a folder: others cannot write to the Hub dataset."""
    split = (facts.split_policy or {}).get("split", "auto")
    # In older records `split` said how to split.
    told = {name: value for name, value in facts.config.items() if name != "split"}
    config = {**told, "split_by": split, "to": f"folder:{facts.name}"}
    publish = {"stage": "publish", "source": facts.source, "config": config}
    return [line for manifest in (*facts.lineage, publish) for line in command_of(manifest)]


def versions(facts: CardFacts) -> Markdown:
    parts = [
        f"{code(manifest.get('stage'))} with kernelmill {text(manifest.get('version', '(not recorded)'))}"
        for manifest in facts.lineage
    ]
    return listed([*parts, f"published with kernelmill {text(facts.version)}"])


def limits(facts: CardFacts) -> list[Markdown]:
    """The limitations that apply to this dataset."""
    counts, found = facts.counts, []
    if facts.kind in ("raw", "filtered", "unique") and not counts.evaluators:
        found.append(
            "The rewards are the producer's. A kernel that fooled its evaluator is in the dataset like any other."
        )
    if counts.raters:
        found.append("A difficulty is the rater's estimate, not a measurement.")
    if facts.kind in ("raw", "filtered") and counts.modules and counts.rows > counts.modules:
        found.append(
            f"Modules repeat: {counts.rows:,} rows have {counts.modules:,} module names between them (and different modules may share a name)."
        )
    if (unique := stage_of(facts, "unique")) is not None:
        found.append(
            "Duplicates were found by name: different modules of one name were lost, one module under two names was kept twice."
            if setting_of(unique, "by") == "name"
            else "Duplicates were found by comparing code, not meaning: the same computation written otherwise counts as another module."
        )
    if facts.kind == "synthetic":
        found.append(
            "Specifications were checked for form, names, shapes and dtypes; a wrong formula would not be noticed."
            if stage_of(facts, "specs")
            else "Whether the specifications were checked is not recorded."
        )
    if (facts.split_policy or {}).get("split") == "rows":
        found.append("Validation has modules that train has too: it measures memory as well as skill.")
    if any(setting_of(manifest, "test_mode") for manifest in facts.lineage):
        found.append("A stage was run in test mode, on the first five rows only.")
    if not counts.with_licences:
        found.append("Which licence the code of a row is under cannot be seen from the row.")
    marked = [m for m in facts.lineage if m.get("stage") == "decontaminate" and not setting_of(m, "drop")]
    if any(each.get("problems_hit") for m in marked for each in (m.get("benchmarks") or {}).values()):
        found.append(
            "Rows that hold a benchmark's problem were marked, not dropped: leave them out before you measure on that benchmark."
        )
    found.append(
        "The code in the rows comes from strangers and from models: run it only where it can do no harm."
    )
    return [Markdown(limit) for limit in found]
