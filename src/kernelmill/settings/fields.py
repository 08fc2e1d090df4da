"""What each command can be told: one class a stage, a field with its help text for each setting (`registry.stage_classes` lists them).

The command line's flags, the keys of a config file and the environment variables all come from these classes; how they are
resolved is in `config`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from kernelmill.errors import ConfigError

PRIME_URL = "https://api.pinference.ai/api/v1"
BASE = "siro1/kernelbook-glm4_7-evals"
"""The base evals set on the Hub, from which the curated ones are made."""
NO_REASONING = "-no-reasoning"
"""What the name of a set ends with once `strip` has been over it."""
MAKERS = {"filtered": "rate", "unique": "unique", "synthetic": "specs", "raw": "synthesize"}
"""The stage that makes the file of each named dataset."""
Method = Literal["llm", "static"]
SplitBy = Literal["auto", "groups", "rows", "none", "source"]


class Settings(BaseModel):
    """Base of all settings: no unknown keys, no change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False,
        defer_build=True,  # only the class of the command that runs is ever needed
    )  # fmt: skip
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(None)

    def origin(self, field: str) -> str:
        """Where a field's value comes from, in words: a file, a variable, the command line, or the default."""
        return self._origins.get(field, "the default")

    def note(self, field: str, origin: str) -> None:
        """Say otherwise where a field's value comes from. Copies of these settings are not told."""
        self._origins = {**self._origins, field: origin}

    def note_origins(self, origins: Mapping[str, str], file: Path | None = None) -> None:
        """Remember where the values of fields come from, and the config file that was read."""
        self._origins |= origins
        self._file = file

    def sources(self) -> list[tuple[str, str]]:
        """What the stage reads, each with where that was said."""
        return [(str(getattr(self, "source", "")), self.origin("source"))]

    @property
    def file(self) -> Path | None:
        """The config file that was given, for a stage that runs another one."""
        return self._file


def setting(
    default: Any,
    help: str,
    *,
    env: str | None = None,
    flag: str | None = None,
    bare: str | None = None,
    metavar: str | None = None,
    **bounds: float,
) -> Any:
    """A field with its help text; `env` is an old variable name that sets it, `flag` a further flag, `bare` the value that the
    flag has where it is given without one, `metavar` what stands for the value in the help."""
    extra = {"env": env, "flag": flag, "bare": bare, "metavar": metavar}
    return Field(default, description=help, json_schema_extra=extra, **bounds)  # type: ignore[call-overload]


def _unnamed(default: Any, env: str) -> Any:
    """A field without a flag."""
    return Field(default, json_schema_extra={"env": env})


class Price(Settings):
    """US dollars for a million tokens."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached_input: float | None = Field(None, ge=0)

    @classmethod
    def parse(cls, text: str) -> Price:
        """`1.75,14` → input and output price."""
        try:
            into, out = (float(part) for part in text.split(","))
            return cls(input=into, output=out, cached_input=None)
        except ValueError:
            raise ConfigError(
                f"--price {text}: expected two numbers, INPUT,OUTPUT, such as 1.75,14"
            ) from None


class Sampling(Settings):
    """What is sent with each request. What is not set is not sent: the server's own default holds."""

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    seed: int | None = None
    reasoning_effort: str | None = None
    extra_body: dict[str, Any] = {}

    @field_validator("extra_body")
    @classmethod
    def _nothing_of_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "nan" in (text := json.dumps(value).lower()) or "infinity" in text:
            raise ValueError("extra_body may not hold NaN or Infinity")
        if taken := {"model", "messages", "stream", "n"} & set(value):
            raise ValueError(f"extra_body may not set {', '.join(sorted(taken))}")
        return value


def _at_home(path: Path | None) -> Path | None:
    return path.expanduser() if path is not None else None


class LLMSettings(Settings):
    """What every stage that calls a model can be told."""

    base_url: str = setting(PRIME_URL, "OpenAI-compatible endpoint", metavar="URL")
    model: str = setting("openai/gpt-5.2", "model to ask", min_length=1)
    api_key_var: str | None = setting(
        None,
        "variable that holds the key (default: by endpoint; PRIME_API_KEY, OPENAI_API_KEY, or no key)",
        metavar="NAME",
    )
    concurrency: int = setting(256, "calls in flight at most", flag="-c", ge=1)
    timeout: float = setting(600.0, "seconds one call may take", gt=0, metavar="SECONDS")
    tries: int = setting(3, "times a question is asked before an unusable answer rejects its row", ge=1)
    server_retries: int = setting(
        8, "times a failing call (5xx, time-out, broken connection) is made again", ge=0
    )
    max_unusable: int = setting(25, "unusable answers in a row after which the run stops (0: never)", ge=0)
    give_up_after: float = setting(
        10.0, "minutes without one success after which the run stops", gt=0, metavar="MINUTES"
    )
    price: str | None = setting(
        None,
        "US dollars for a million tokens of the model, INPUT,OUTPUT (or [prices] in the config)",
        metavar="INPUT,OUTPUT",
    )
    max_cost: float | None = setting(
        None, "stop cleanly before this many US dollars are spent on the job", ge=0, metavar="DOLLARS"
    )
    sampling: Sampling = Sampling()
    prices: dict[str, Price] = {}


class RowSettings(Settings):
    """What every stage that reads rows and writes rows can be told."""

    source: str
    output: Path
    split: str | None = setting(None, "one split of a Hub dataset (default: all)", metavar="NAME")
    on_bad_row: Literal["stop", "reject"] = setting("stop", "what to do with a row that cannot be read")
    test_mode: bool = setting(False, "first 5 rows only, written beside the real output", env="TEST_MODE")

    _home = field_validator("output", "journal", "prompt", check_fields=False)(_at_home)


class StageSettings(LLMSettings, RowSettings):
    """What every stage that has its rows answered can be told."""

    journal: Path | None = setting(None, "file that keeps every answer (default: beside the output)")
    dry_run: bool = setting(False, "say what would be asked and what it would cost; call nothing")
    trace: bool = setting(
        True, "run modules in an isolated process to learn their shapes (where torch is there)"
    )
    trace_timeout: float = setting(30.0, "seconds one module may take there", gt=0, metavar="SECONDS")


class NamedDatasets(Settings):
    """The datasets that a command may call by a dataset_name: the file of each, and its name on the Hub. Of the config file (`[publish]`,
    for every command) and the environment alone."""

    filtered_path: str = _unnamed("outputs/filtered_dataset.jsonl", "FILTERED_DATASET_PATH")
    unique_path: str = _unnamed("outputs/filtered_dataset-filtered.jsonl", "UNIQUE_DATASET_PATH")
    synthetic_path: str = _unnamed("outputs/synthetic_prompts.jsonl", "SYNTHETIC_DATASET_PATH")
    raw_path: str = "outputs/evals.jsonl"
    filtered_to: str = f"{BASE}-filtered"
    unique_to: str = f"{BASE}-unique"
    synthetic_to: str = "siro1/kernelbook-synthetic-tasks"
    raw_to: str = BASE


class RateSettings(StageSettings):
    """Keep the good rows, and say how hard each one's task is."""

    source: str = setting(BASE, "evals rows")
    output: Path = setting(
        Path("outputs/filtered_dataset.jsonl"), "file to write", env="FILTERED_DATASET_PATH", flag="-o"
    )
    rater: Method = setting("llm", "who rates: a model, or program analysis")
    threshold: float = setting(0.85, "rows with a reward above this are kept", metavar="REWARD")
    prompt: Path | None = setting(None, "your own prompt template (Jinja)")
    compare: bool = setting(False, "run both raters and print how far they agree")


class SpecsSettings(StageSettings):
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
        0.0, "share of rows without one clear answer that is put up with", ge=0, le=1, metavar="SHARE"
    )
    hub: bool = setting(
        False,
        "read what is called by name from the Hub, and publish it there as …-no-reasoning; without HF_TOKEN, local files alone",
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
            # Past the lock that keeps settings as they are: from here on it is the file itself, for everybody who asks.
            object.__setattr__(self, "source", getattr(self, f"{dataset_name}_path"))
            self._dataset_name = dataset_name
        return self

    @property
    def dataset_name(self) -> str | None:
        """What the source was called, where it was called by one of our words."""
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

    _home = field_validator("json_path", "plot")(_at_home)


class PublishSettings(NamedDatasets):
    """Make a dataset of rows, in a folder or on the Hub."""

    source: str = setting(
        "all", "rows, or what to publish by name (filtered, unique, synthetic, raw; all is the first three)"
    )
    to: str | None = setting(
        None,
        "org/name on the Hub, or folder:PATH (default for what has a name: its target in the config)",
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
    seed: int = setting(42, "what the split is drawn with", ge=0)
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
        """None: it has several, and says them itself."""
        return []

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        """`split` once said how to split; those words still do. The split to read was `source_split`."""
        if not isinstance(given, dict):
            return given
        given = dict(given)
        if given.get("split") in get_args(SplitBy):
            given.setdefault("split_by", given.pop("split"))
        if "source_split" in given:
            given.setdefault("split", given.pop("source_split"))
        return given


class RunSettings(Settings):
    """The table `[run]`: which stages `kernelmill run` goes through."""

    steps: list[dict[str, Any]] = []
    """Each has a `stage`, perhaps a `name`, and settings of its own, which win over those of the stage's table."""
    report: Path = Path("outputs/run.json")
    show: str = ""
    """Arguments of `kernelmill show`, for an example of what was made, shown before the table where anything was."""
    next: list[str] = []
    """Commands to try afterwards, shown when all is done; each begins with `kernelmill`."""
    test_mode: bool = setting(False, "first 5 rows only", env="TEST_MODE")
