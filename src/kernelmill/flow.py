"""The map: every command, what it reads and writes, and the function behind it.

The command line, its help and the docs come from this table. A stage is a function from rows to rows; the
columns of the rows are in docs/commands.md, "Row formats". `kernelmill.stages` says how a stage is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Estimate(NamedTuple):
    """The result of a dry run: the model calls that a stage would make, without retries."""

    rows: int
    """The maximum number of output rows."""
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = 0.0
    """US dollars; None where the price is not known."""
    at_most: bool = False
    """Whether this is an upper bound: some calls are made only if an answer has to be repaired."""


class StageResult(NamedTuple):
    """The result of a stage, for `kernelmill run`."""

    outputs: tuple[Path, ...] = ()
    """Output files that depend only on the stage's inputs and settings; empty if there are none."""
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    cost: float | None = 0.0
    """US dollars; None where calls were made and their price is not known."""
    results: tuple[tuple[str, str], ...] = ()
    """Places that a user will want to look at, each with what is there."""
    estimate: Estimate | None = None
    """The estimate of a dry run, which writes nothing."""


class Command(NamedTuple):
    name: str
    what: str
    reads: str
    writes: str
    run: str
    """`module:function`, imported only when the command is called and given its settings. Of a tool, it returns
    the exit code. Empty if there are subcommands."""
    settings: str = ""
    """`module:class` of its settings; flags and the keys of its table in a config come from it."""
    load: str = ""
    """`module:function` that loads a stage's settings, if its config file also accepts other projects' keys."""
    subcommands: tuple[Command, ...] = ()
    """Commands within this one, each with its settings and its function."""


STAGES = [
    Command(
        "synthesize", "have a model or the compiler write Triton versions, and judge them",
        "KernelBook rows, KernelBench rows or problem files", "outputs/evals.jsonl",
        "kernelmill.generate.synthesize.command:synthesize",
        "kernelmill.generate.synthesize.settings:SynthesizeSettings", "kernelmill.generate.synthesize.config_file:load_settings",
    ),
    Command(
        "rate", "keep the rows with a good reward and say how hard each task is",
        "evals rows", "outputs/filtered_dataset.jsonl", "kernelmill.curate.rate:rate", "kernelmill.settings.fields:RateSettings",
    ),
    Command(
        "specs", "write a task specification for each module",
        "KernelBook rows, evals rows or problem files", "outputs/synthetic_prompts.jsonl", "kernelmill.curate.specs.stage:specs", "kernelmill.settings.fields:SpecsSettings",
    ),
    Command(
        "unique", "keep the best row of each module",
        "evals rows", "outputs/filtered_dataset-filtered.jsonl", "kernelmill.curate.unique:unique", "kernelmill.settings.fields:UniqueSettings",
    ),
    Command(
        "decontaminate", "mark or drop the rows that hold a problem of a benchmark",
        "evals, KernelBook or synthetic rows", "outputs/filtered_dataset-decontaminated.jsonl",
        "kernelmill.curate.decontaminate:decontaminate", "kernelmill.settings.fields:DecontaminateSettings",
    ),
    Command(
        "strip", "reduce every assistant message to its answer",
        "evals rows", "the source's name + -no-reasoning", "kernelmill.curate.strip:strip", "kernelmill.settings.fields:StripSettings",
    ),
    Command(
        "lengths", "count tokens under a chat template and say which seq_len cuts nothing",
        "rows with chats", "a report", "kernelmill.curate.lengths:lengths", "kernelmill.settings.fields:LengthsSettings",
    ),
    Command(
        "publish", "make a dataset that others can load, in a folder or on the Hub",
        "any rows", "a folder, or a dataset on the Hub", "kernelmill.publish.command:publish", "kernelmill.settings.fields:PublishSettings",
    ),
]  # fmt: skip
"""Stages, in the usual order; `specs` and `lengths` are side branches."""

_PROBLEMS = "kernelmill.problems.sets.command"
PROBLEMS = (
    Command(
        "import", "problems from KernelBench or anywhere else into a folder, each checked once",
        "KernelBench, problem files or rows", "a problem folder", f"{_PROBLEMS}:import_set", f"{_PROBLEMS}:ImportSettings",
    ),
    Command(
        "list", "every problem of an imported set on a line",
        "a problem folder", "", f"{_PROBLEMS}:list_problems", f"{_PROBLEMS}:ListSettings",
    ),
    Command(
        "show", "one problem: inputs, operations, what the checks found, source",
        "a problem folder", "", f"{_PROBLEMS}:show", f"{_PROBLEMS}:ShowSettings",
    ),
    Command(
        "stats", "an imported set by level, operators, sizes and dtypes",
        "a problem folder", "", f"{_PROBLEMS}:stats", f"{_PROBLEMS}:StatsSettings",
    ),
    Command(
        "export", "an imported set as prompts for RL trainers",
        "a problem folder", "RL prompts", f"{_PROBLEMS}:export_prompts", f"{_PROBLEMS}:ExportSettings",
    ),
    Command(
        "merge", "level files as one file, shuffled or in an order",
        "level files", "RL prompts", f"{_PROBLEMS}:merge", f"{_PROBLEMS}:MergeSettings",
    ),
    Command(
        "verify", "whether a merged file is what its level files make it",
        "level files", "", f"{_PROBLEMS}:verify_files", f"{_PROBLEMS}:VerifySettings",
    ),
)  # fmt: skip
"""The subcommands of `problems`."""

TOOLS = [
    Command(
        "run",
        "go through the stages that a config names, skipping what is done",
        "a config",
        "outputs/run.json",
        "kernelmill.pipeline.command:main",
        "kernelmill.pipeline.command:RunFlags",
    ),
    Command(
        "evaluate",
        "judge Triton candidates: correct, incorrect, hack or inconclusive, with reasons",
        "pairs of a reference and a candidate",
        "verdicts",
        "kernelmill.evaluate.command:main",
        "kernelmill.evaluate.command:EvaluateSettings",
    ),
    Command(
        "serve",
        "judge candidates behind HTTP, for trainers",
        "requests",
        "verdicts",
        "kernelmill.serve.command:main",
        "kernelmill.serve.command:ServeSettings",
    ),
    Command(
        "rescore",
        "compute the rewards of stored verdicts again",
        "verdicts",
        "verdicts",
        "kernelmill.evaluate.score.rescore:main",
        "kernelmill.evaluate.score.rescore:RescoreSettings",
    ),
    Command(
        "admit",
        "flag problems that a candidate could pass without computing them",
        "problem files",
        "a report",
        "kernelmill.evaluate.admit.command:main",
        "kernelmill.evaluate.admit.command:AdmitSettings",
    ),
    Command(
        "verify-kernelbook",
        "judge KernelBook's kernels again and keep the rows that hold",
        "KernelBook rows",
        "the rows with their verdicts",
        "kernelmill.benchmarks.kernelbook.command:main",
        "kernelmill.benchmarks.kernelbook.command:VerifySettings",
    ),
    Command(
        "bench-model",
        "have a model answer KernelBench and grade it: fast_p and pass@k by level",
        "KernelBench",
        "results by level, eval_results.json",
        "kernelmill.benchmarks.kernelbench.command:main",
        "kernelmill.benchmarks.kernelbench.command:BenchSettings",
    ),
    Command(
        "problems",
        "bring problem sets in, and make, merge and verify RL prompts",
        "KernelBench, problem files or rows, level files",
        "problem folders, RL prompts",
        "",
        f"{_PROBLEMS}:ProblemsSettings",
        subcommands=PROBLEMS,
    ),
    Command(
        "decompose",
        "take models apart into proven layers, fusions and kernels",
        "problem files",
        "a folder a model",
        "kernelmill.decompose.command:main",
        "kernelmill.decompose.command:DecomposeSettings",
    ),
    Command(
        "prove",
        "prove decomposed models from their files",
        "folders of decomposed models",
        "verification results beside them",
        "kernelmill.decompose.prove.command:main",
        "kernelmill.decompose.prove.command:ProveSettings",
    ),
    Command(
        "collect",
        "collect the different kernels and fusions of decomposed models",
        "folders of decomposed models",
        "a folder of problems",
        "kernelmill.decompose.collect:main",
        "kernelmill.decompose.collect:CollectSettings",
    ),
    Command(
        "show",
        "look at rows of any source",
        "any rows",
        "",
        "kernelmill.stages.show:main",
        "kernelmill.stages.show:ShowSettings",
    ),
    Command(
        "journal",
        "list, total or export what was paid for",
        "journals",
        "JSONL",
        "kernelmill.llm.command:main",
        "kernelmill.llm.command:JournalSettings",
    ),
    Command(
        "doctor",
        "say what this machine can do, and what to install for the rest",
        "",
        "",
        "kernelmill.doctor:main",
        "kernelmill.doctor:DoctorSettings",
    ),
]

COMMANDS = {command.name: command for command in (*STAGES, *TOOLS)}
