"""The config file of `synthesize`. It accepts the keys that other projects' configs use.

    [[env]] id, name, args, num_examples, rollouts_per_example, skip_first
    max_concurrent, reasoning_field, output_dir
    [client] base_url, api_key_var, timeout
    [model] name
    [sampling] temperature, top_p, max_tokens, seed, …

Settings without such a key are in `[synthesize]`, under the names of the flags. `[prices]` is the same as in
every config. A table `[llm]` is read as well, so that one file serves all commands. An earlier run's manifest
can be used instead of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelmill.errors import ConfigError
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.settings.arguments import check_tables
from kernelmill.settings.config import load, read_config

OUTPUT = "evals.jsonl"
"""The name of the file in `output_dir`."""
_PLAIN = {"max_concurrent": "concurrency", "reasoning_field": "reasoning_field"}
_TABLES = {
    "client": {"base_url": "base_url", "api_key_var": "api_key_var", "timeout": "timeout"},
    "model": {"name": "model"},
}
KEYS = ("env", "output_dir", *_PLAIN, *_TABLES, "sampling")
"""The keys of this command's file, beside the tables of every config."""


def load_settings(flags: Mapping[str, Any], file: Path | None) -> SynthesizeSettings:
    """Resolve the settings: the environment overrides the file, flags override the environment."""
    if "source" in flags and "problems" in flags:
        raise ConfigError("name the problems once: by source, or by problems")
    if file is None:
        return load("synthesize", SynthesizeSettings, flags)
    values = read(file)
    try:
        SynthesizeSettings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{file}: unknown key {where}") from None
        raise ConfigError(
            f"{file}: {where}: {first['msg'][0].lower()}{first['msg'][1:]} (got {first['input']!r})"
        ) from None
    variables = load("synthesize", SynthesizeSettings, {})
    told = _merged(variables.model_dump(exclude_unset=True), flags)
    merged = _merged(values, told)
    if "source" in told or "problems" in told:
        # A source given by a flag or the environment replaces all sources of the file.
        merged |= {"source": told.get("problems", told.get("source")), "problems": None, "env": ()}
    settings = load("synthesize", SynthesizeSettings, merged)
    by_file = {key: str(file) for key in values if key not in flags}
    settings.note_origins(by_file | {key: variables.origin(key) for key in told if key not in flags})
    return settings


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {**below, **above}
    if isinstance(below.get("sampling"), dict) and isinstance(above.get("sampling"), dict):
        both["sampling"] = {**below["sampling"], **above["sampling"]}
    return both


def read(file: Path) -> dict[str, Any]:
    """Read a config file, with keys translated to our setting names."""
    content = read_config(file)
    if file.suffix == ".json":
        if not isinstance(content, dict) or content.get("stage") != "synthesize":
            raise ConfigError(f"{file} is not the manifest of a synthesize run")
        return dict(content["config"])
    return translated(content, str(file))


def translated(content: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Translate the tables of a config file to our setting names."""
    check_tables(file, content, KEYS)
    values: dict[str, Any] = dict(_table(content, "llm", file))
    for key, name in _PLAIN.items():
        if key in content:
            values[name] = content[key]
    for table, names in _TABLES.items():
        for key, value in _table(content, table, file).items():
            if key not in names:
                raise ConfigError(f"{file}: unknown key {table}.{key} (known: {', '.join(names)})")
            values[names[key]] = value
    for name in ("sampling", "prices"):
        if name in content:
            values[name] = _table(content, name, file)
    if "env" in content:
        values["env"] = content["env"]
    if "output_dir" in content:
        if not isinstance(content["output_dir"], str):
            raise ConfigError(f"{file}: output_dir must be a text")
        values["output"] = str(Path(content["output_dir"]) / OUTPUT)
    values |= _table(content, "synthesize", file)
    if len({"env", "source", "problems"} & set(values)) > 1:
        raise ConfigError(f"{file}: name the problems once, by [[env]] or by source")
    return values


def _table(content: Mapping[str, Any], name: str, file: str) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: {name} must be a table ([{name}])")
    return table
