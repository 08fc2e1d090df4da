"""Datasets on the Hugging Face Hub, as local files of one pinned commit.

Files are downloaded into the Hub cache (resumable, shared with other tools) and streamed from there. The
files of each split come from the card's `configs`, or else from the file names, as in `datasets`. Does not
run loading scripts, and reads the default config only.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Any

from kernelmill.base.problem_layout import maker_of, natural
from kernelmill.errors import NotOnHub, SourceError
from kernelmill.store.hub_http import http_error
from kernelmill.store.parquet import first_line
from kernelmill.store.source import DATA, DataFile

_FIRST = ["train", "validation", "valid", "val", "dev", "test"]


def hub_files(
    repo: str, revision: str | None, split: str | None, token: str | None, asked_as: str
) -> tuple[list[DataFile], dict[str, Any]]:
    """Download the files of a dataset. Returns them and their origin for the manifest."""
    import yaml  # type: ignore[import-untyped]
    from huggingface_hub import HfApi, hf_hub_download, metadata_load
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        info = HfApi(token=token or False).dataset_info(repo, revision=revision)

        def download(name: str) -> Path:
            return Path(
                hf_hub_download(repo, name, repo_type="dataset", revision=info.sha, token=token or False)
            )

        names = [item.rfilename for item in info.siblings or []]
        try:
            card = metadata_load(download("README.md")) if "README.md" in names else None
        except (ValueError, yaml.YAMLError) as error:
            raise SourceError(f"{repo}: its card cannot be read ({first_line(error)})") from error
        splits = find_splits(names, card or {})
        if not splits:
            raise SourceError(f"{repo} on the Hub holds no data file ({', '.join(DATA)})")
        if split is not None and split not in splits:
            raise SourceError(f"{repo} has no split {split!r} (it has: {', '.join(splits)})")
        chosen = [split] if split is not None else list(splits)
        label = f"{repo}@{(info.sha or 'main')[:7]}"
        files = [
            DataFile(download(name), f"{label}:{name}", part) for part in chosen for name in splits[part]
        ]
    except HFValidationError as error:
        raise SourceError(
            f"{asked_as}: no such file or folder, nor a name on the Hub ({first_line(error)}){maker_of(asked_as)}"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, http_error(), OSError) as error:
        kind = NotOnHub if isinstance(error, RepositoryNotFoundError) else SourceError
        reason = why_not(repo, error)
        raise kind(
            f"{asked_as}: no file or folder of that name here, and {reason}{maker_of(asked_as)}"
        ) from error
    return files, {"kind": "hub", "repo": repo, "revision": info.sha, "splits": chosen}


def find_splits(names: list[str], card: dict[str, Any]) -> dict[str, list[str]]:
    """The data files of each split, train first, files in natural order."""
    data = sorted((name for name in names if name.endswith(DATA)), key=natural)
    splits = _from_card(data, card) or _from_names(data)
    order = [name for name in _FIRST if name in splits] + sorted(set(splits) - set(_FIRST))
    return {name: splits[name] for name in order}


def _from_card(data: list[str], card: dict[str, Any]) -> dict[str, list[str]]:
    """Splits by the card's default config.

    Entries that do not follow the Hub's format are ignored. If nothing is left, the file names decide.
    """
    configs = card.get("configs")
    configs = [entry for entry in configs if isinstance(entry, dict)] if isinstance(configs, list) else []
    default = next((c for c in configs if c.get("config_name") == "default" or c.get("default")), None)
    entry = default or (configs[0] if configs else {})
    patterns = entry.get("data_files")
    if isinstance(patterns, dict):
        patterns = [{"split": split, "path": path} for split, path in patterns.items()]
    elif not (isinstance(patterns, list) and all(isinstance(part, dict) for part in patterns)):
        patterns = [{"split": "train", "path": patterns}]
    splits: dict[str, list[str]] = {}
    for part in patterns:
        path = part.get("path")
        paths = [p for p in (path if isinstance(path, list) else [path]) if isinstance(p, str)]
        found = [name for name in data if any(fnmatch.fnmatch(name, p) for p in paths)]
        if found:
            splits.setdefault(str(part.get("split", "train")), []).extend(found)
    return splits


def _from_names(data: list[str]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for name in data:
        words = re.split(r"[\W_]+", name.lower())
        splits.setdefault(next((word for word in _FIRST if word in words), "train"), []).append(name)
    # `push_to_hub` names files by their split, such as KernelBench's `level_1`.
    sharded = [
        re.match(r"^(?:.*/)?(?P<split>[\w.]+)-\d{5}-of-\d{5}(?:-\w+)?\.parquet$", name) for name in data
    ]
    if data and all(sharded):
        splits = {}
        for name, match in zip(data, sharded, strict=True):
            assert match is not None
            splits.setdefault(match["split"], []).append(name)
    return splits


def why_not(repo: str, error: Exception, kind: str = "dataset") -> str:
    """Explain an error from the Hub, and what to do about it."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, RevisionNotFoundError):
        return f"the Hub's {repo} has no such revision"
    if isinstance(error, GatedRepoError):
        return f"{repo} is gated on the Hub: ask for access there and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
        return f"the Hub has no public {kind} {repo} (is it private? then set HF_TOKEN)"
    if isinstance(error, HfHubHTTPError):
        return f"the Hub answered {status} for {repo}: try again later"
    return f"the Hub cannot be reached ({type(error).__name__}): check the name, or the network"
