"""The base of all settings classes, and the settings that several stages share.

A stage's own class is in `fields`, or with the stage. `setting` declares a field with its flag and its
help text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from kernelmill.errors import ConfigError

PRIME_URL = "https://api.pinference.ai/api/v1"


class Settings(BaseModel):
    """Base of all settings: no unknown keys, no change after loading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False,
        defer_build=True,  # only the class of the command that runs is ever needed
    )  # fmt: skip
    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(None)

    def origin(self, field: str) -> str:
        """Where a field's value comes from, for messages: a file, a variable, the command line, or the default."""
        return self._origins.get(field, "the default")

    def note(self, field: str, origin: str) -> None:
        """Replace the recorded origin of a field. Copies made earlier keep the old one."""
        self._origins = {**self._origins, field: origin}

    def note_origins(self, origins: Mapping[str, str], file: Path | None = None) -> None:
        """Record the origins of fields, and the config file that was read."""
        self._origins |= origins
        self._file = file

    def sources(self) -> list[tuple[str, str]]:
        """The sources that the stage reads, each with the origin of that setting."""
        return [(str(getattr(self, "source", "")), self.origin("source"))]

    @property
    def file(self) -> Path | None:
        """The config file that was read, for a stage that runs another stage."""
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
    """Declare a field with its help text.

    `env` is an old name of its environment variable, `flag` a second flag, `bare` the value of a flag
    given without one, and `metavar` the placeholder of the value in the help.
    """
    extra = {"env": env, "flag": flag, "bare": bare, "metavar": metavar}
    return Field(default, description=help, json_schema_extra=extra, **bounds)  # type: ignore[call-overload]


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
    """Sampling parameters of a request. A parameter that is not set is not sent, so the server's default applies."""

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


def expand_home(path: Path | None) -> Path | None:
    return path.expanduser() if path is not None else None


class LLMSettings(Settings):
    """Settings of every stage that calls a model."""

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
    """Settings of every stage that reads and writes rows."""

    source: str
    output: Path
    split: str | None = setting(None, "one split of a Hub dataset (default: all)", metavar="NAME")
    on_bad_row: Literal["stop", "reject"] = setting("stop", "what to do with a row that cannot be read")
    test_mode: bool = setting(False, "first 5 rows only, written beside the real output", env="TEST_MODE")

    _home = field_validator("output", "journal", "prompt", check_fields=False)(expand_home)


class StageSettings(LLMSettings, RowSettings):
    """Settings of every stage whose rows are answered by a model or by program analysis."""

    journal: Path | None = setting(None, "file that keeps every answer (default: beside the output)")
    dry_run: bool = setting(False, "say what would be asked and what it would cost; call nothing")
    trace: bool = setting(
        True, "run modules in an isolated process to learn their shapes (where torch is there)"
    )
    trace_timeout: float = setting(30.0, "seconds one module may take there", gt=0, metavar="SECONDS")
