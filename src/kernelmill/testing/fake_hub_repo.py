"""The repositories of the fake hub: commits, trees and oids, in the format that the clients read.

Everything is in memory. Nothing here is thread-safe: the hub holds its lock.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

KINDS = ("model", "dataset", "space")
LFS_SUFFIXES = (".parquet", ".arrow", ".bin", ".gz", ".zip", ".zst", ".tar", ".npy", ".pt", ".safetensors")
LFS_BYTES = 10 * 1024 * 1024  # larger files are LFS whatever their name, as on the real Hub
DATE = "2026-01-01T00:00:00.000Z"


class Refusal(Exception):
    """A request that the hub rejects, with an HTTP status.

    `code` tells the client whether a repo, a revision or a file is missing.
    """

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        self.status, self.message, self.code = status, message, code
        super().__init__(status, message)


@dataclass(frozen=True)
class Commit:
    """A state of a repo: `files` are all of its files, not the commit's changes."""

    sha: str
    message: str
    files: Mapping[str, bytes]
    parent: Commit | None = field(default=None, repr=False)

    def history(self) -> Iterator[Commit]:
        """Yield this commit and its ancestors, newest first."""
        commit: Commit | None = self
        while commit is not None:
            yield commit
            commit = commit.parent


@dataclass
class Repo:
    kind: str
    id: str
    private: bool
    branches: dict[str, Commit] = field(default_factory=dict)
    tags: dict[str, Commit] = field(default_factory=dict)

    def add(self, branch: str, message: str, files: Mapping[str, bytes]) -> Commit:
        parent = self.branches.get(branch)
        blobs = [(path, _git_oid(data)) for path, data in sorted(files.items())]
        seed = json.dumps([self.kind, self.id, parent.sha if parent else None, message, blobs])
        self.branches[branch] = Commit(hashlib.sha1(seed.encode()).hexdigest(), message, dict(files), parent)
        return self.branches[branch]

    def commit(self, branch: str, body: bytes, lfs: Mapping[str, bytes]) -> Commit:
        """Apply a whole commit request, or reject it and change nothing."""
        if branch not in self.branches:
            raise Refusal(404, f"no such branch: {branch}", "RevisionNotFound")
        return self.add(branch, *_apply(self.branches[branch], body, lfs))

    def find(self, revision: str) -> Commit:
        """Find the commit of a branch, a tag, a full ref name or a sha (at least 7 digits)."""
        for prefix, refs in (("refs/heads/", self.branches), ("refs/tags/", self.tags)):
            if commit := refs.get(revision.removeprefix(prefix)):
                return commit
        for head in [*self.branches.values(), *self.tags.values()]:
            for commit in head.history():
                if len(revision) >= 7 and commit.sha.startswith(revision):
                    return commit
        raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")

    def refer(self, word: Literal["branch", "tag"], name: str, revision: str) -> None:
        """Create a branch or tag."""
        refs = self.branches if word == "branch" else self.tags
        if name in refs:
            raise Refusal(409, f"{word} {name} already exists")
        refs[name] = self.find(revision)

    def info(self, revision: str, blobs: bool) -> dict[str, Any]:
        """Describe the repo at a revision and its file names; with `blobs`, also their sizes and oids."""
        commit = self.find(revision)
        siblings: list[dict[str, Any]] = [{"rfilename": path} for path in sorted(commit.files)]
        for sibling in siblings if blobs else []:
            entry = _entry(sibling["rfilename"], commit.files[sibling["rfilename"]])
            sibling.update(entry, blobId=entry["oid"])
        facts = {"id": self.id, "sha": commit.sha, "private": self.private, "siblings": siblings}
        return {**facts, "createdAt": DATE, "lastModified": DATE, "gated": False, "tags": []}

    def tree(self, revision: str, top: str, recursive: bool) -> list[dict[str, Any]]:
        """List the files and folders below the folder `top`, or of the whole repo if it is empty."""
        prefix, found = f"{top}/" if top else "", dict[str, bytes | None]()
        for path, data in sorted(self.find(revision).files.items()):
            if path.startswith(prefix):
                *parents, _ = path.removeprefix(prefix).split("/")
                for depth in range(len(parents) if recursive else min(len(parents), 1)):
                    found[prefix + "/".join(parents[: depth + 1])] = None
                if recursive or not parents:
                    found[path] = data
        if top and not found:
            raise Refusal(404, f"{top} does not exist at this revision", "EntryNotFound")
        return [_entry(path, data) for path, data in found.items()]

    def refs(self) -> dict[str, Any]:
        branches, tags = (
            [{"name": n, "ref": f"refs/{word}/{n}", "targetCommit": c.sha} for n, c in refs.items()]
            for word, refs in (("heads", self.branches), ("tags", self.tags))
        )
        return {"branches": branches, "tags": tags, "converts": [], "pullRequests": []}

    def log(self, revision: str) -> list[dict[str, Any]]:
        common: dict[str, Any] = {"message": "", "date": DATE, "authors": [{"user": "owner"}]}
        history = self.find(revision).history()
        return [{"id": commit.sha, "title": commit.message, **common} for commit in history]

    def upload_modes(self, revision: str, wanted: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return how each announced file is to be uploaded."""
        have, files = self.find(revision).files, []
        for item in wanted:
            path, mode = item["path"], "lfs" if is_lfs(item["path"], item["size"]) else "regular"
            # The client compares this oid and leaves unchanged files out of the commit.
            there = {"oid": file_oid(path, have[path])} if path in have else {}
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **there})
        return files


class Store:
    """The repos of a hub by kind and org/name, and the LFS objects, which are uploaded before commits."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], Repo] = {}
        self.lfs: dict[str, bytes] = {}

    def put(self, kind: str, repo_id: str, files: Mapping[str, bytes], private: bool, message: str) -> str:
        if kind not in KINDS or not re.fullmatch(r"[\w.-]+/[\w.-]+", repo_id):
            raise ValueError(f"not a kind of repo and its org/name: {kind!r}, {repo_id!r}")
        repo = self.repos.setdefault((kind, repo_id), Repo(kind, repo_id, private))
        before = repo.branches["main"].files if repo.branches else {}
        self.lfs.update(
            {file_oid(path, data): data for path, data in files.items() if is_lfs(path, len(data))}
        )
        return repo.add("main", message, {**before, **files}).sha

    def put_lfs(self, oid: str, data: bytes) -> None:
        if hashlib.sha256(data).hexdigest() != oid:
            raise Refusal(400, "the content does not have the sha256 that it was announced with")
        self.lfs[oid] = data


def is_lfs(path: str, size: int) -> bool:
    return size > LFS_BYTES or (size > 0 and path.endswith(LFS_SUFFIXES))


def file_oid(path: str, data: bytes) -> str:
    """Return the oid that clients compare to detect changes, and use as cache key."""
    return hashlib.sha256(data).hexdigest() if is_lfs(path, len(data)) else _git_oid(data)


def _git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _entry(path: str, data: bytes | None) -> dict[str, Any]:
    """Describe a file, or a folder if there is no data."""
    if data is None:
        return {"type": "directory", "path": path, "size": 0, "oid": _git_oid(path.encode())}
    lfs = {"oid": file_oid(path, data), "sha256": file_oid(path, data), "size": len(data), "pointerSize": 134}
    extra = {"lfs": lfs} if is_lfs(path, len(data)) else {}
    return {"type": "file", "path": path, "size": len(data), "oid": _git_oid(data), **extra}


def _apply(base: Commit, body: bytes, lfs: Mapping[str, bytes]) -> tuple[str, dict[str, bytes]]:
    """Return the message and the files that a commit request asks for. `base` is not modified."""
    files, message = dict(base.files), ""
    for line in body.splitlines():
        operation = json.loads(line)
        key, value = operation["key"], operation["value"]
        path = value.get("path", "")
        if key == "header":
            message = value["summary"]
            if not base.sha.startswith(value.get("parentCommit") or ""):
                raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        elif key == "file":
            files[path] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            if value["oid"] not in lfs:
                raise Refusal(400, f"the LFS object of {path} was never uploaded: {value['oid']}")
            files[path] = lfs[value["oid"]]
        elif key in ("deletedFile", "deletedFolder"):
            inside = path.rstrip("/") + "/"
            gone = [f for f in files if (f == path if key == "deletedFile" else f.startswith(inside))]
            if not gone:
                raise Refusal(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
            files = {name: data for name, data in files.items() if name not in gone}
        else:
            raise Refusal(400, f"the fake hub does not know the operation {key}")
    return message, files
