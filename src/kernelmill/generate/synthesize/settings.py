"""The settings of `kernelmill synthesize`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from kernelmill.evaluate.score.rewards import find
from kernelmill.settings.base import Settings, StageSettings, setting

STAGE = "synthesize"


class SetArguments(Settings):
    """The table `args` of a problem set."""

    split: str | None = None
    """One split of a Hub dataset."""


class ProblemSource(Settings):
    """A table `[[env]]`: where problems come from, and how many candidates each gets."""

    id: str = Field(min_length=1)
    """File, folder or Hub dataset."""
    name: str | None = None
    """The column `task`; by default the last part of `id`."""
    args: SetArguments = SetArguments()
    num_examples: int = Field(default=-1, ge=-1)
    """Problems to take; -1 takes all."""
    rollouts_per_example: int = Field(default=1, ge=1)
    skip_first: int = Field(default=0, ge=0)

    @property
    def task(self) -> str:
        return self.name or Path(self.id.partition("@")[0]).name.partition(".")[0] or self.id


class SynthesizeSettings(StageSettings):
    """Have candidates written and judged."""

    source: str = setting("GPUMODE/KernelBook", "KernelBook rows, KernelBench rows or problem files")
    output: Path = setting(Path("outputs/evals.jsonl"), "file to write", flag="-o")
    problems: str | None = setting(None, "the same as SOURCE", metavar="SOURCE")
    teacher: Literal["inductor"] | None = setting(
        None, "generate candidates with torch's Inductor compiler instead of a model"
    )
    limit: int | None = setting(None, "the first N problems only", ge=1)
    skip_first: int | None = setting(None, "problems to leave out at the beginning", ge=0)
    rollouts: int | None = setting(
        None, "candidates for each problem (default: 1, or what [[env]] says)", ge=1, le=4096
    )
    turns: int = setting(1, "answers in one rollout: after a wrong one the model is told why", ge=1, le=64)
    tries: int = setting(
        1, "attempts before an empty, truncated or refused answer is kept as the answer", ge=1
    )
    prompt: Path | None = setting(None, "your own prompt template (Jinja)")
    hardware: str = setting(
        "an NVIDIA H100 GPU (sm_90)", "what the prompt says the kernel will run on", metavar="TEXT"
    )
    reward: str | None = setting(
        None,
        "reward function for the column `reward` (default: speedup where times are taken, else correct)",
        metavar="NAME",
    )
    keep: Literal["all", "correct", "fastest"] = setting(
        "all", "rows to keep: all, the correct ones, or the best correct one of each problem"
    )
    export: Literal["conversation", "last", "best"] = setting(
        "conversation",
        "with several turns: all of them as the completion, the last one after the others as its prompt, or the best one alone",
    )
    stats: Path | None = setting(
        None,
        "write pass@k, failures and costs as JSON (to a file beside the output, or to this one)",
        bare="",
    )
    device: Literal["cpu", "cuda", "auto"] = setting("auto", "where candidates are judged")
    workers: int | None = setting(None, "candidates at a time (default: number of CPUs)", ge=1)
    eval_timeout: float = setting(
        60.0, "seconds one candidate may take in one tier", gt=0, lt=1e6, metavar="SECONDS"
    )
    tf32: bool = setting(False, "allow TF32 in float32 matrix products")
    reasoning_field: Literal["reasoning", "reasoning_content"] = setting(
        "reasoning", "the key of a message that holds its thoughts, wherever the server put them"
    )
    # Only in the config file.
    env: tuple[ProblemSource, ...] = ()
    # This stage traces nothing.
    trace: Literal[False] = False
    trace_timeout: float = 30.0

    _their_home = field_validator("stats")(lambda path: path.expanduser() if path is not None else None)

    @field_validator("reward")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None:
            find(value)
        return value

    @model_validator(mode="after")
    def _one_name_for_each(self) -> SynthesizeSettings:
        # Bypass the frozen model: from here on there is one name for the source, and one for a file.
        if self.problems is not None:
            object.__setattr__(self, "source", self.problems)
            object.__setattr__(self, "problems", None)
        if self.stats == Path():
            object.__setattr__(
                self, "stats", self.output.with_name(f"{self.output.name.partition('.')[0]}.stats.json")
            )
        return self

    def note_origins(self, origins: Mapping[str, str], file: Path | None = None) -> None:
        same = {"source": origins["problems"]} if "problems" in origins else {}
        super().note_origins({**origins, **same}, file)

    def sources(self) -> list[tuple[str, str]]:
        if not self.env:
            return super().sources()
        return [(one.id, f"[[env]] in {self.origin('env')}") for one in self.sets()]

    def sets(self) -> list[ProblemSource]:
        """Return where problems come from. A flag applies to all sets."""
        given = self.env or (ProblemSource(id=self.source, args=SetArguments(split=self.split)),)
        told = {
            "num_examples": self.limit,
            "skip_first": self.skip_first,
            "rollouts_per_example": self.rollouts,
        }
        update = {name: value for name, value in told.items() if value is not None}
        return [one.model_copy(update=update) for one in given]
