"""Derive the commands that rebuild a dataset from the settings in its manifests.

A command contains the settings that differ from the defaults and affect the rows, not those for speed and
cost. Files are given by name only, because the publisher's folders are private. An endpoint in a private
network becomes `URL`. Does not guarantee the same model answers: those are in the publisher's journal.
"""

from __future__ import annotations

import ipaddress
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kernelmill.publish.card.markdown import one_line
from kernelmill.settings.registry import stage_classes

_NOT_THE_ROWS = {
    "source", "output", "concurrency", "timeout", "server_retries", "max_unusable", "give_up_after", "price", "prices",
    "max_cost", "api_key_var", "journal", "dry_run", "compare", "public", "yes", "workers", "stats",
}  # fmt: skip
"""Settings that are expressed in another way, or do not affect the rows."""
_OF_THE_MODEL = {"base_url", "model", "tries", "sampling"}
_SETS_FILE = "sets.toml"
PRIVATE_URL = "URL"
_PRIVATE_DOMAINS = {"", "local", "internal", "lan", "localhost", "home", "corp", "intranet", "private"}


def command_of(manifest: Mapping[str, Any]) -> list[str]:
    """The lines of one stage's command: comments for settings without a flag, then the command."""
    stage, config = str(manifest.get("stage")), _mapping(manifest.get("config"))
    if benchmarks := _mapping(manifest.get("benchmarks")):
        config["against"] = [
            f"{name}={source_name(_mapping(found.get('source')))}" for name, found in benchmarks.items()
        ]
    output = _mapping(manifest.get("output")).get("path")
    origin = _mapping(manifest.get("source"))
    words, notes = ["kernelmill", stage], []
    if sets := config.pop("env", None):
        # Problem sets can be given in a config file only.
        notes.append(f"# {_SETS_FILE}: env = {_toml(_sets(sets, origin))}")
        words += ["@", _SETS_FILE]
    else:
        words.append(source_name(origin))
    words += ["-o", file_name(output)] if output else []
    for name, value in _changed(stage, config, asked_a_model(manifest)):
        if name == "sampling":
            extra = value.pop("extra_body", None)
            words += [word for key, item in value.items() for word in ("--sampling", f"{key}={item}")]
            if extra:
                notes.append(
                    f"# in a config file: [{stage}] sampling.extra_body = {msgspec.json.encode(extra).decode()}"
                )
        else:
            words += _flag(name, value)
    return [one_line(line, 2000) for line in (*notes, shlex.join(words))]


def _sets(sets: list[dict[str, Any]], origin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The `[[env]]` tables of a run, each with its source under a public name."""
    origins = origin.get("sources") or [origin]
    return [
        {
            name: value
            for name, value in (one | {"id": source_name(_mapping(found))}).items()
            if value is not None and value != {"split": None}
        }
        for one, found in zip(sets, origins, strict=True)
    ]


def _toml(value: Any) -> str:
    """A value as one line of TOML. Only tables are written differently from JSON; there are no nulls here."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(item)}' for name, item in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def _changed(stage: str, config: Mapping[str, Any], model: bool) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from their defaults, in order; of sampling, those that were set."""
    kind = stage_classes().get(stage)
    fields = kind.model_fields if kind else {}
    for name, value in config.items():
        if name in _NOT_THE_ROWS or name.endswith(("_path", "_to")) or (name in _OF_THE_MODEL and not model):
            continue
        if name == "sampling" and isinstance(value, dict):
            if chosen := {key: item for key, item in value.items() if item not in (None, {})}:
                yield name, chosen
        elif value is not None and not (name in fields and _as_saved(fields[name].default) == value):
            yield name, value


def _as_saved(default: Any) -> Any:
    return str(default) if isinstance(default, PurePath) else default


def _flag(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if name == "base_url":
        return [flag, public_url(value)]
    if isinstance(value, list):
        return [word for item in value for word in (flag, _plain_value(item))]
    return [flag, _plain_value(value)]


def _plain_value(value: Any) -> str:
    words = str(value)
    kind, colon, path = words.partition(":")
    if colon and kind == "folder":
        return f"folder:{file_name(path)}"
    return file_name(words) if words.startswith(("/", "~", ".", "\\")) else words


def asked_a_model(manifest: Mapping[str, Any]) -> bool:
    return str(manifest.get("by", "")).startswith("llm:")


def source_name(origin: Mapping[str, Any]) -> str:
    """A source's name on the command line: a Hub source with its revision, a local one by file name only."""
    if origin.get("kind") == "hub":
        revision = origin.get("revision")
        return f"{origin.get('repo')}@{revision}" if revision else str(origin.get("repo"))
    path = str(origin.get("path") or "")
    if origin.get("kind") == "bundled":
        return path
    return file_name(path) if path else "SOURCE"


def file_name(path: object) -> str:
    return PurePath(str(path).replace("\\", "/")).name or "SOURCE"


def public_url(url: object) -> str:
    """A public URL without the parts that may hold a key; `URL` for an endpoint in a private network."""
    try:
        parts = urlsplit(str(url))
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return PRIVATE_URL
    return f"{parts.scheme}://{host}{port}{parts.path}" if _is_public(host) else PRIVATE_URL


def _is_public(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_global
    except ValueError:  # a name
        return "." in host and host.rpartition(".")[2] not in _PRIVATE_DOMAINS


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}
