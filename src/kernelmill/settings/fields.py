"""The settings of each stage: one class a stage, one field with its help text a setting.

The command line's flags, the keys of a config file and the environment variables all come from these classes.
`registry.stage_classes` lists them, `config` loads them, and `base` has what they share.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from kernelmill.settings.base import RowSettings, Settings, StageSettings, expand_home, setting

BASE = "siro1/kernelbook-glm4_7-evals"
"""The base evals set on the Hub, from which the curated ones are made."""
NO_REASONING = "-no-reasoning"
"""The suffix of the name of a dataset that `strip` has processed."""
MAKERS = {"filtered": "rate", "unique": "unique", "synthetic": "specs", "raw": "synthesize"}
"""The stage that makes the file of each named dataset."""
Method = Literal["llm", "static"]
SplitBy = Literal["auto", "groups", "rows", "none", "source"]


def _unnamed(default: Any, env: str) -> Any:
    """A field without a flag."""
    return Field(default, json_schema_extra={"env": env})


class NamedDatasets(Settings):
    """The named datasets: the file of each, and its name on the Hub.

    They are set in the config file (`[publish]`, for every command) or the environment, and have no flags.
    """

    filtered_path: str = _unnamed("outputs/filtered_dataset.jsonl", "FILTERED_DATASET_PATH")
    unique_path: str = _unnamed("outputs/filtered_dataset-filtered.jsonl", "UNIQUE_DATASET_PATH")
    synthetic_path: str = _unnamed("outputs/synthetic_prompts.jsonl", "SYNTHETIC_DATASET_PATH")
    raw_path: str = "outputs/evals.jsonl"
    filtered_to: str = f"{BASE}-filtered"
    unique_to: str = f"{BASE}-unique"
    synthetic_to: str = "siro1/kernelbook-synthetic-tasks"
    raw_to: str = BASE


class AnswerSettings(StageSettings):
    """Settings of every stage whose questions a model can also answer in JSON."""

    answers: Literal["text", "json"] = setting(
        "text", "what a model answers in: text, or JSON by a schema, if the endpoint supports response_format"
    )

    @field_validator("answers")
    @classmethod
    def _one_response_format(cls, value: str, others: ValidationInfo) -> str:
        sampling = others.data.get("sampling")
        if value == "json" and sampling and "response_format" in sampling.extra_body:
            raise ValueError("it sends a response_format of its own: leave it out of sampling.extra_body")
        return value


class RateSettings(AnswerSettings):
    """Keep the good rows, and rate the difficulty of each one's task."""

    source: str = setting(BASE, "evals rows")
    output: Path = setting(
        Path("outputs/filtered_dataset.jsonl"), "file to write", env="FILTERED_DATASET_PATH", flag="-o"
    )
    rater: Method = setting("llm", "who rates: a model, or program analysis")
    threshold: float = setting(0.85, "rows with a reward above this are kept", metavar="REWARD")
    prompt: Path | None = setting(None, "your own prompt template (Jinja)")
    compare: bool = setting(False, "run both raters and print how far they agree")


class SpecsSettings(AnswerSettings):
    """Write a task specification for each module."""

    source: str = setting("GPUMODE/KernelBook", "KernelBook rows, evals rows or problem files")
    output: Path = setting(
        Path("outputs/synthetic_prompts.jsonl"), "file to write", env="SYNTHETIC_DATASET_PATH", flag="-o"
    )
    writer: Method = setting("llm", "who writes: a model, or program analysis", flag="--rater")
    threshold: float | None = setting(
        None, "of rows that have a reward, take those above this (default: all)", metavar="REWARD"
    )
    prompt: Path | None = setting(None, "your own prompt template (Jinja)")


class UniqueSettings(RowSettings):
    """Keep the best row of each module."""

    source: str = setting("outputs/filtered_dataset.jsonl", "evals rows", env="FILTERED_DATASET_PATH")
    output: Path = setting(
        Path("outputs/filtered_dataset-filtered.jsonl"), "file to write", env="UNIQUE_DATASET_PATH", flag="-o"
    )
    by: Literal["name", "structure", "near"] = setting(
        "near", "what makes two modules the same: their name, their code, or nearly the same code"
    )
    similarity: float = setting(
        0.85, "by near: share of code that two modules have in common", gt=0, le=1, metavar="SHARE"
    )
    compare: bool = setting(
        False, "by name: also count what the other ways would keep (always done for files up to 16 MB)"
    )


class DecontaminateSettings(RowSettings):
    """Find the rows that hold a problem of a benchmark."""

    source: str = setting("outputs/filtered_dataset.jsonl", "rows with a module", env="FILTERED_DATASET_PATH")
    output: Path = setting(Path("outputs/filtered_dataset-decontaminated.jsonl"), "file to write", flag="-o")
    against: tuple[str, ...] = setting(
        ("ScalingIntelligence/KernelBench",),
        "problems that must not be in the rows: a source, or NAME=SOURCE; may be given several times",
        min_length=1,
        metavar="SOURCE",
    )
    drop: bool = setting(False, "reject the rows that hold one, instead of marking them")
    share: float = setting(
        0.8, "share of a problem's n-grams that makes a row hold it", gt=0, le=1, metavar="SHARE"
    )

    @field_validator("against", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class StripSettings(RowSettings, NamedDatasets):
    """Reduce every assistant message to its answer."""

    source: str = setting("filtered", "evals rows, or by name: raw, filtered, unique")
    output: Path | None = setting(
        None, "file to write (default: the source's name + -no-reasoning)", flag="-o"
    )  # type: ignore[assignment]
    style: Literal["answer", "fence", "begin_python", "reasoning_content"] = setting(
        "answer",
        "how the answer is marked; reasoning_content also keeps the thoughts, in a field of their own",
    )
    max_rejected: float = setting(
        0.0, "maximum share of rows rejected for lack of one clear answer", ge=0, le=1, metavar="SHARE"
    )
    hub: bool = setting(
        False,
        "read the named dataset from the Hub and publish the result there as …-no-reasoning; without HF_TOKEN, local files alone",
    )
    public: bool = setting(False, "with --hub: make a new Hub dataset public")
    dry_run: bool = setting(
        False, "say what would be kept, and with --hub what would change there; write nothing"
    )
    yes: bool = setting(
        False, "with --hub: do not ask before a dataset is replaced by a much smaller one", flag="-y"
    )
    _dataset_name: str | None = PrivateAttr(None)
    _hub_target: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _by_name(self) -> StripSettings:
        dataset_name = "raw" if self.source == "source" else self.source
        if dataset_name in ("raw", "filtered", "unique"):
            # Bypass the frozen model: from here on the source is the file itself.
            object.__setattr__(self, "source", getattr(self, f"{dataset_name}_path"))
            self._dataset_name = dataset_name
        return self

    @property
    def dataset_name(self) -> str | None:
        """The name of the source, where it was given as a named dataset."""
        return self._dataset_name

    @property
    def hub_target(self) -> str | None:
        """The dataset on the Hub that the result is published as; None where nothing is uploaded."""
        return self._hub_target

    def from_hub(self) -> StripSettings:
        """The same, reading the named dataset from the Hub and publishing the result there."""
        name = getattr(self, f"{self._dataset_name}_to")
        changed = self.model_copy(update={"source": f"hub:{name}"})
        changed._hub_target = f"{name}{NO_REASONING}"
        return changed

    def note_origins(self, origins: Mapping[str, str], file: Path | None = None) -> None:
        super().note_origins(origins, file)
        if self._dataset_name is not None:
            self._origins["source"] = f"{self._dataset_name}, by {self.origin(f'{self._dataset_name}_path')}"


class LengthsSettings(NamedDatasets):
    """Count the tokens of rows under a chat template."""

    source: str = setting(BASE, "rows with chats", env="DATASET_PATH")
    tokenizer: str = setting(
        "Qwen/Qwen3-30B-A3B-Thinking-2507",
        "a name on the Hub, a folder, or qwen-embedded, which needs no network",
        metavar="NAME",
    )
    reasoning: Literal["count", "drop"] = setting(
        "count", "what to do with thoughts: count them, or leave them out"
    )
    json_path: Path | None = setting(None, "write the numbers to this file", flag="--json")
    plot: Path | None = setting(None, "write the histogram to this file, as SVG")
    split: str | None = setting(None, "one split of a Hub dataset (default: all)", metavar="NAME")
    test_mode: bool = setting(
        False, "first 5 rows only; --json and --plot are written beside the real files", env="TEST_MODE"
    )

    _home = field_validator("json_path", "plot")(expand_home)


class PublishSettings(NamedDatasets):
    """Make a dataset of rows, in a folder or on the Hub."""

    source: str = setting(
        "all", "rows, or what to publish by name (filtered, unique, synthetic, raw; all is the first three)"
    )
    to: str | None = setting(
        None,
        "org/name on the Hub, or folder:PATH (default for a named dataset: its target in the config)",
        metavar="TARGET",
    )
    split: str | None = setting(
        None, "one split of a Hub dataset (default: all)", metavar="NAME", flag="--source-split"
    )
    split_by: SplitBy = setting(
        "auto",
        "train and validation by groups of alike modules, by rows, as in the Hub dataset that the rows were made from, or train "
        "alone; auto: as in that dataset, else groups for evals rows, but not raw",
    )
    validation: float = setting(0.1, "share of validation", gt=0, lt=1, metavar="SHARE")
    seed: int = setting(42, "random seed of the split", ge=0)
    similarity: float = setting(
        0.85, "share of code that makes two modules alike", gt=0, le=1, metavar="SHARE"
    )
    json_columns: str = setting("", "columns to publish as JSON text, with commas between", metavar="A,B")
    license: str | None = setting(
        None, "licence of the whole, by the Hub's identifier, such as mit", metavar="NAME"
    )
    public: bool = setting(False, "make a new Hub dataset public (one that is there stays what it is)")
    allow_benchmark: bool = setting(
        False, "publish rows of a benchmark too (benchmark: true), which training sets must not hold"
    )
    dry_run: bool = setting(False, "say what would change; change nothing")
    yes: bool = setting(False, "do not ask before a dataset is replaced by a much smaller one", flag="-y")
    test_mode: bool = setting(
        False, "first 5 rows only, to a folder beside the real one; never to the Hub", env="TEST_MODE"
    )

    def sources(self) -> list[tuple[str, str]]:
        """None: the stage has several sources, and reports them itself."""
        return []

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        """Accept the old names: `split` for `split_by`, and `source_split` for `split`."""
        if not isinstance(given, dict):
            return given
        given = dict(given)
        if given.get("split") in get_args(SplitBy):
            given.setdefault("split_by", given.pop("split"))
        if "source_split" in given:
            given.setdefault("split", given.pop("source_split"))
        return given


class RunSettings(Settings):
    """The table `[run]`: the stages that `kernelmill run` runs."""

    steps: list[dict[str, Any]] = Field(default_factory=list)
    """Each has a `stage`, optionally a `name`, and its own settings, which override those of the stage's table."""
    report: Path = Path("outputs/run.json")
    show: str = ""
    """Arguments of `kernelmill show`, to print an example row after a run that changed something."""
    next: list[str] = Field(default_factory=list)
    """Commands to try next, printed after the last step; each begins with `kernelmill`."""
    test_mode: bool = setting(False, "first 5 rows only", env="TEST_MODE")
