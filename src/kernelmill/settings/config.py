"""Load settings (the classes of `fields`) from five places.

    default  <  TOML file  <  .env  <  environment  <  flag

A TOML file has one table for each command (`[rate]`, `[specs]`), a table `[llm]` for the settings that
stages with a model share, and `[prices]`. The names of datasets are in `[publish]` for all stages. Tables
of other commands are ignored (`arguments.TABLES`). The resolved settings are saved in the output's
manifest, and a manifest can replace the TOML file, so that a run can be repeated from its own folder. An
unknown key is an error.

Environment variables are `KERNELMILL_` + the key in capitals (`KERNELMILL_CONCURRENCY=64`). The variable
names of the pipeline that kernelmill replaces (`DATASET_PATH` …) work as well; they are declared on the
field they set.

Secrets are not settings: `environment.secret` reads them when they are needed, and `environment.redact`
removes their values from any text that is shown or saved.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kernelmill.errors import ConfigError
from kernelmill.settings.arguments import check_tables, nearest
from kernelmill.settings.base import LLMSettings, Settings
from kernelmill.settings.environment import SECRETS, environment, names_secret, redact, secret
from kernelmill.settings.fields import NamedDatasets, RunSettings
from kernelmill.settings.providers import PROVIDERS
from kernelmill.settings.registry import stage_classes

__all__ = ["GIVEN", "OTHER_VARIABLES", "SECRETS", "environment", "load", "public", "redact", "secret"]

OTHER_VARIABLES = (*(name for one in PROVIDERS.values() for name in one.headers.values()), *SECRETS)

GIVEN = "given"
"""The origin of a setting given by a flag or by a step of `run`."""

S = TypeVar("S", bound=Settings)


def load(stage: str, kind: type[S], flags: Mapping[str, Any], file: Path | None = None) -> S:
    """Load the settings of a stage. `flags` holds only the flags that were given."""
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    variables = _from_environment(kind)
    for origin, values in (
        (str(file), _from_file(file, stage, kind) if file else {}),
        ("environment", {key: environment()[variable] for key, variable in variables.items()}),
        ("flag", dict(flags)),
    ):
        for key, value in values.items():
            if isinstance(value, dict) and isinstance(merged.get(key), dict):
                value = {**merged[key], **value}
            merged[key] = value
            origins[key] = origin
    try:
        settings = kind.model_validate(merged)
    except ValidationError as error:
        raise _config_error(error, kind, origins) from None
    said = {key: _in_words(origin, variables.get(key)) for key, origin in origins.items()}
    settings.note_origins(said, file)
    return settings


def _in_words(origin: str, variable: str | None) -> str:
    if origin == "environment":
        return f"{variable} in {'the environment' if variable in os.environ else '.env'}"
    return GIVEN if origin == "flag" else origin


def _config_error(error: ValidationError, kind: type[Settings], origins: Mapping[str, str]) -> ConfigError:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    origin = origins.get(path[0], "config")
    if first["type"] == "extra_forbidden":
        return ConfigError(_unknown(origin, ".".join(path), list(kind.model_fields)))
    name = ".".join(path)
    shown = {"flag": f"--{name.replace('_', '-')}", "environment": f"environment: {name}"}.get(
        origin, f"{origin}: {name}"
    )
    return ConfigError(f"{shown}: {first['msg'][0].lower()}{first['msg'][1:]} (got {first['input']!r})")


def _unknown(origin: str, key: str, known: list[str]) -> str:
    return f"{origin}: unknown key {key} ({nearest(key.split('.')[-1], known)})"


def read_config(file: Path) -> Any:
    """Decode a config file: TOML, or the JSON of a manifest."""
    try:
        text = file.read_text(encoding="utf-8")
        return json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        kind = file.suffix.lstrip(".").upper() or "TOML"
        raise ConfigError(f"{file}: not valid {kind} ({error})") from None


def _from_file(file: Path, stage: str, kind: type[Settings]) -> dict[str, Any]:
    """Read the tables of this stage: `[llm]`, `[prices]`, `[<stage>]`; later ones override earlier ones."""
    content = read_config(file)
    if file.suffix == ".json":
        return _from_manifest(file, stage, content)
    check_tables(file, content)
    tables: dict[str, type[Settings]] = {"llm": LLMSettings, "run": RunSettings, **stage_classes()}
    for table, values in content.items():
        known = list(tables[table].model_fields) if table in tables else list(values)
        for key in values:
            if key not in known:
                raise ConfigError(_unknown(str(file), f"{table}.{key}", known))
    merged: dict[str, Any] = {}
    if issubclass(kind, LLMSettings):
        merged |= content.get("llm", {})
        if "prices" in content:
            merged["prices"] = content["prices"]
    if issubclass(kind, NamedDatasets):
        # Datasets are named in one place, so every stage reads what `publish` publishes.
        named = content.get("publish", {})
        merged |= {key: named[key] for key in NamedDatasets.model_fields if key in named}
    merged |= content.get(stage, {})
    return merged


def _from_manifest(file: Path, stage: str, manifest: Any) -> dict[str, Any]:
    """Read the settings recorded in a manifest."""
    made_by = manifest.get("stage") if isinstance(manifest, dict) else None
    if made_by != stage or not isinstance(manifest.get("config"), dict):
        raise ConfigError(
            f"{file} is not the manifest of a {stage} run" + (f" but of {made_by}" if made_by else "")
        )
    return dict(manifest["config"])


def _from_environment(kind: type[Settings]) -> dict[str, str]:
    """Find the fields that are set by a variable, each with the variable's name."""
    variables = environment()
    known = {name for stage in stage_classes().values() for name in stage.model_fields}
    for variable in variables:
        key = variable.removeprefix("KERNELMILL_").lower()
        if variable.startswith("KERNELMILL_") and not names_secret(variable) and key not in known:
            raise ConfigError(
                _unknown("environment", variable, [f"KERNELMILL_{name.upper()}" for name in sorted(known)])
            )
    found: dict[str, str] = {}
    for name, field in kind.model_fields.items():
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        for variable in (str(extra.get("env") or ""), f"KERNELMILL_{name.upper()}"):
            if variables.get(variable, ""):
                found[name] = variable
    return found


def public(settings: Settings) -> dict[str, Any]:
    """The resolved settings as they are saved: everything except secrets."""
    saved: dict[str, Any] = _redacted(settings.model_dump(mode="json"))
    return saved


def _redacted(value: Any) -> Any:
    """Redact each string by itself: a variable `…_TOKEN` may hold `false`, and booleans must not change."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value
