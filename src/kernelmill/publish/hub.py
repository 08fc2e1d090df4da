"""Publish a dataset to the Hub: data, card and manifest in one commit, on top of the one inspected.

Files are uploaded first and stay invisible until the commit, which is atomic. The same commit removes the old
data. The same rows give the same bytes, so files that an interrupted run uploaded are not sent again. If
somebody else commits in between, the Hub rejects our commit and the user is told. If the response to the
commit is lost, the branch shows whether the commit was made.

The client retries uploads by itself. This module retries a few times what the client does not: rate limits,
server errors and lost connections. Does not change the visibility of an existing dataset, and keeps files
that are not data.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from kernelmill import __version__
from kernelmill.base.terminal import say, size
from kernelmill.errors import OutputError
from kernelmill.publish.dataset import MANIFEST, Built
from kernelmill.publish.parquet_writer import WrittenFile
from kernelmill.publish.target import Present, data_files, read_manifest
from kernelmill.settings.config import redact
from kernelmill.store.hub_http import http_error
from kernelmill.store.parquet import first_line
from kernelmill.store.source import DataFile

T = TypeVar("T")
TRIES = 5
LONGEST_WAIT = 300.0
_AGAIN = (408, 429, 500, 502, 503, 504)
_CARD = "README.md"
_NEW = (".gitattributes", _CARD)
"""Files that a newly created dataset may contain."""


class HubTarget:
    """A target that is a dataset on the Hub."""

    forgets = False

    def __init__(self, repo: str, token: str | None, public: bool) -> None:
        from huggingface_hub import HfApi

        self.label = repo
        self._public = public
        self._token: str | bool = token or False
        self._api = HfApi(token=self._token, library_name="kernelmill", library_version=__version__)
        self._stack = contextlib.ExitStack()
        self._head: str | None = None
        self._private = not public
        self._present: Present | None = None

    def __enter__(self) -> HubTarget:
        self._stack.enter_context(_plain_words())
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def staging(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmill-publish-")))

    def look(self) -> Present | None:
        from huggingface_hub.errors import RepositoryNotFoundError

        def info() -> Any:
            try:
                return self._api.dataset_info(self.label, files_metadata=True)
            except RepositoryNotFoundError:
                return None  # or it is private: the Hub does not distinguish the two

        found = self._patiently("looking at the dataset", info)
        if found is None:
            self._head = self._present = None
            return None
        self._head, self._private = found.sha, bool(found.private)
        files = {
            sibling.rfilename: sibling.lfs.sha256 if sibling.lfs else (sibling.blob_id or "")
            for sibling in found.siblings or []
        }
        manifest = None
        if MANIFEST in files:
            manifest = read_manifest(f"{self.label}/{MANIFEST}", self._download(MANIFEST).read_bytes())
        card = self._download(_CARD).read_bytes() if _CARD in files else None
        made = (manifest or {"files": {}})["files"].get(_CARD, {}).get("sha256")
        edited = [_CARD] if made and card and hashlib.sha256(card).hexdigest() != made else []
        self._old_data = data_files(files, card)
        self._present = Present(files, manifest, edited, self._splits)
        return self._present

    def _splits(self) -> dict[str, list[DataFile]]:
        return {
            split: [DataFile(self._download(name), f"{self.label}:{name}") for name in names]
            for split, names in self._old_data.items()
        }

    def _download(self, name: str) -> Path:
        """Download a file of the inspected commit."""
        from huggingface_hub import hf_hub_download

        def download() -> Path:
            return Path(
                hf_hub_download(self.label, name, repo_type="dataset", revision=self._head, token=self._token)
            )

        return self._patiently(f"reading {name}", download)

    def to_send(self, built: Built) -> int:
        return sum(file.size for file in self._differing(built))

    def _differing(self, built: Built) -> list[WrittenFile]:
        there = self._present.files if self._present else {}
        return [
            file
            for name, file in built.files.items()
            if name not in there or there[name] != _hash_like(there[name], file)
        ]

    def _outdated(self, built: Built) -> list[str]:
        """Files to remove: the old data, and other files of an earlier publication."""
        there = self._present
        if there is None:
            return []
        ours = (there.manifest or {"files": {}})["files"]
        data = {name for names in self._old_data.values() for name in names}
        return [name for name in there.files if name not in built.files and (name in ours or name in data)]

    def put(self, built: Built) -> str | None:
        if self._head is None:
            self._create()
        if not self._differing(built) and not self._outdated(built):
            return None
        self._upload(built)
        return f"{self._api.endpoint}/datasets/{self.label} ({'private' if self._private else 'public'})"

    def _create(self) -> None:
        from huggingface_hub.errors import HfHubHTTPError

        def create() -> None:
            try:
                self._api.create_repo(self.label, repo_type="dataset", private=not self._public)
            except HfHubHTTPError as error:
                # 409: it exists, made by our call whose response was lost, or by somebody else.
                if _status(error) != 409:
                    raise

        self._patiently("making the dataset", create)
        present = self.look()
        if present is None:
            raise OutputError(
                f"the Hub has {self.label} but does not show it to HF_TOKEN: run the same command again, or name another --to"
            )
        if set(present.files) - set(_NEW):
            raise self._conflict()

    def _upload(self, built: Built) -> None:
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        head = self._head
        additions = [
            CommitOperationAdd(path_in_repo=file.name, path_or_fileobj=str(file.path))
            for file in self._differing(built)
        ]
        deletions = [CommitOperationDelete(path_in_repo=name) for name in self._outdated(built)]
        say(f"uploading {size(self.to_send(built))} to {self.label}")
        for addition in additions:
            # One by one: the client would send several in threads, and Ctrl-C would have to wait for them.
            self._patiently("uploading", functools.partial(self._send, addition), tries=1)
        rows = sum(built.rows.values())

        def commit() -> None:
            self._api.create_commit(
                self.label,
                [*additions, *deletions],
                commit_message=f"Publish {rows:,} rows with kernelmill {__version__}",
                repo_type="dataset",
                parent_commit=head,
            )

        def is_made() -> bool:
            """Whether the commit was made although its response was lost.

            Raises if there is another commit.
            """
            self.look()
            if not self._differing(built) and not self._outdated(built):
                return True
            if self._head != head:
                raise self._conflict()
            return False

        self._patiently("committing", commit, after_loss=is_made)

    def _send(self, addition: Any) -> None:
        self._api.preupload_lfs_files(self.label, [addition], repo_type="dataset", free_memory=False)

    def _patiently(
        self,
        doing: str,
        call: Callable[[], T],
        tries: int = TRIES,
        after_loss: Callable[[], bool] | None = None,
    ) -> T | Any:
        """Call the Hub and retry transient failures.

        `after_loss` says whether a call without a response took effect.
        """
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

        for attempt in range(1, tries + 1):
            try:
                return call()
            except OfflineModeIsEnabled:
                raise OutputError("the Hub is switched off by HF_HUB_OFFLINE: unset it") from None
            except (
                HfHubHTTPError, http_error(), LocalEntryNotFoundError, RuntimeError, ValueError,
            ) as error:  # fmt: skip
                cause = _cause(error)
                status = _status(cause)
                if not isinstance(cause, (http_error(), LocalEntryNotFoundError)):
                    # The client's own checks: an invalid name, or metadata that the Hub does not accept.
                    raise OutputError(
                        f"{doing} {self.label}: {first_line(Exception(redact(str(cause))))}: nothing is changed"
                    ) from error
                if status is not None and status not in _AGAIN:
                    raise self._told(doing, cause) from error
                # A 429 was rejected; anything else may have taken effect all the same.
                if after_loss is not None and status != 429 and after_loss():
                    return None
                if attempt == tries:
                    raise self._told(doing, cause) from error
                wait = _wait(cause, attempt)
                say(f"{doing}: {_why(cause)}; again in {wait:g} s ({attempt} of {tries - 1})")
                time.sleep(wait)
        raise AssertionError("unreachable")

    def _conflict(self) -> OutputError:
        return OutputError(
            f"{self.label} is being changed by somebody else: nothing of this is published; run the same command again"
        )

    def _told(self, doing: str, error: Exception) -> OutputError:
        """Convert a failure to an error message that says what to do, in one line."""
        status, repo = _status(error), self.label
        org = repo.partition("/")[0]
        kept = "nothing is changed; run the same command again, and what is uploaded is not sent twice"
        known = {
            401: "the Hub does not know HF_TOKEN (401): make a new one at https://huggingface.co/settings/tokens",
            403: f"HF_TOKEN may not write to {repo} (403): give it write access to {org}, or name another --to",
            404: f"the Hub does not have {repo}, or HF_TOKEN may not see it (404): give it write access to {org}, or name another --to",
            429: f"the Hub asks for a pause (429) while {doing}: wait a few minutes; {kept}",
        }
        if status in (409, 412):
            return self._conflict()
        if status in known:
            return OutputError(known[status])
        if status is not None and status < 500:
            said = getattr(error, "server_message", None) or first_line(error)
            return OutputError(f"the Hub refused {repo} while {doing} ({status}): {redact(said)}")
        return OutputError(f"{_why(error)} while {doing} {repo}: {kept}")


def _cause(error: Exception) -> Exception:
    """The HTTP error inside an exception: the client wraps failures of uploads and downloads."""

    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, http_error()):
            return inner
        inner = inner.__cause__
    return error


def _status(error: Exception) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _why(error: Exception) -> str:
    status = _status(error)
    return f"the Hub answered {status}" if status else f"the Hub cannot be reached ({type(error).__name__})"


def _wait(error: Exception, attempt: int) -> float:
    asked = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After", "")
    return min(float(asked), LONGEST_WAIT) if asked.isdigit() else 0.5 * 2 ** (attempt - 1)


def _hash_like(known: str, file: WrittenFile) -> str:
    """A file's hash of the same kind as `known`: SHA-256 for large (LFS) files, else git's blob hash."""
    if len(known) == len(file.sha256):
        return file.sha256
    sha = hashlib.sha1(b"blob %d\0" % file.size)
    with file.path.open("rb") as content:
        while block := content.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


@contextlib.contextmanager
def _plain_words() -> Iterator[None]:
    """Print the client's warnings as our own lines, without signed URLs.

    Show its progress bars on a terminal only.
    """
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    logger = logging.getLogger("huggingface_hub")
    handlers, level, handler = logger.handlers[:], logger.level, _Said()
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers = handlers
        logger.setLevel(level)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(
            f"the Hub's client: {first_line(Exception(redact(re.sub(r'[?][^ ]*', '', record.getMessage()))))}"
        )
