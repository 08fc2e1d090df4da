"""Find the manifests that stages write beside their outputs, and follow a file back to its source."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from kernelmill.store.output import beside


def manifest_of(file: Path) -> dict[str, Any] | None:
    """The manifest beside a file, or None. A file of that name that no stage wrote is ignored."""
    try:
        manifest = msgspec.json.decode(beside(file, ".manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    ours = isinstance(manifest, dict) and isinstance(manifest.get("stage"), str) and part(manifest, "output")
    return manifest if ours else None


def file_hash(path: Path) -> str:
    """The SHA-256 of a file as a hex string, as in manifests."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def part(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of a manifest; empty where it is missing."""
    found = manifest.get(name)
    return found if isinstance(found, dict) else {}


def made_from(manifest: dict[str, Any], file: Path) -> Path | None:
    """The file that `file` was made from: at its recorded path, else beside `file`; else None."""
    origin = part(manifest, "source")
    if origin.get("kind") != "file" or not isinstance(origin.get("path"), str):
        return None
    named = Path(origin["path"]).expanduser()
    return next((path for path in (named, file.parent / named.name) if path.is_file()), None)
