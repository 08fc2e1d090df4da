"""Trace where a source's rows come from, through the manifests of earlier stages.

A stage writes its manifest beside its output and names its source there. That source's manifest is looked up
at the recorded path, else in the same folder. A manifest that does not match (the file was edited, or made
again since) is left out together with everything before it, so that nothing false is published. Folder names
are removed for privacy.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from typing import Any

from kernelmill.settings.config import redact
from kernelmill.store import Source
from kernelmill.store.manifest import made_from, manifest_of, part

_FOLDERS = re.compile(r"(?<![\w:/.])(?:[A-Za-z]:|~\w*|\.{1,2})?[/\\](?:[^\s/\\\"']+[/\\])+([^\s/\\\"']*)")
"""A path from the root, home or current folder, with its last part as a group; not the path inside a URL."""
_PATHS = ("path", "source", "output", "journal", "prompt", "against")
"""Keys whose value is a file name, so that folders are removed from relative paths too."""


class Lineage:
    """The manifests of all earlier stages, first stage first, and a note on why there are no more."""

    def __init__(self, source: Source) -> None:
        self.stages: list[dict[str, Any]] = []
        self.note: str | None = None
        self._file = source.files[0].path if source.origin.get("kind") == "file" else None
        self._last = manifest_of(self._file) if self._file else None

    @property
    def made_in_test_mode(self) -> bool:
        if self._file is not None and self._file.name.endswith(".test.jsonl"):
            return True
        config = (self._last or {}).get("config")
        return isinstance(config, dict) and config.get("test_mode") is True

    def follow(self, sha256: str) -> None:
        """Collect the manifests. `sha256` is the hash of the source's rows as they were read."""
        manifest, file, seen = self._last, self._file, set[Path]()
        if manifest is not None and part(manifest, "output").get("sha256") != sha256:
            self.note = (
                f"{file} is not what its manifest says it was: its earlier stages are left out of the card"
            )
            manifest = None
        while manifest is not None and file is not None and file.resolve() not in seen:
            seen.add(file.resolve())
            self.stages.insert(0, manifest)
            rows_in = part(manifest, "rows").get("in")
            file = made_from(manifest, file)
            used, manifest = manifest.get("finished"), manifest_of(file) if file else None
            other = manifest is not None and (
                part(manifest, "output").get("rows") != rows_in or str(manifest.get("finished")) > str(used)
            )
            if other:
                self.note = (
                    f"{file} was made again since it was used: its earlier stages are left out of the card"
                )
                manifest = None

    def public(self) -> list[dict[str, Any]]:
        """The manifests without folder names and secrets."""
        return [without_folders(manifest) for manifest in self.stages]


def without_folders(value: Any, key: str = "") -> Any:
    """A value of a manifest without folder names and secrets, fit to be published."""
    if isinstance(value, dict):
        return {name: without_folders(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_folders(inner, key) for inner in value]
    if not isinstance(value, str):
        return value
    text = _FOLDERS.sub(lambda found: found[1], redact(value))
    is_file = key in _PATHS and "/" in text and PurePath(text).suffix and ":" not in text
    return PurePath(text).name if is_file else text
