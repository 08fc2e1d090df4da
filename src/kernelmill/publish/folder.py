"""Publish a dataset to a local folder that `datasets.load_dataset` can open.

The new dataset is built beside the old one (`.NAME.new`) and swapped in atomically. At any moment, also after
a kill, the folder holds either the old dataset or the new one, complete. The next run removes what a killed
process left. Where the file system has no atomic swap, the old folder is first moved aside (`.NAME.old`). A
process that is killed at that point leaves no folder, and the next run restores the old one.

Does not replace a folder that contains files not made by kernelmill.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path
from typing import IO

from kernelmill.base.locks import take_lock
from kernelmill.errors import OutputError
from kernelmill.publish.dataset import MANIFEST, Built
from kernelmill.publish.target import Present, data_files, read_manifest
from kernelmill.store.manifest import file_hash
from kernelmill.store.output import to_disk
from kernelmill.store.source import DataFile

_AT_FDCWD, _EXCHANGE = -100, 2
_CANNOT_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ENOTSUP)


class FolderTarget:
    """A target that is a local folder."""

    forgets = True

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()
        self.label = str(path)
        self._new = self.path.with_name(f".{self.path.name}.new")
        self._old = self.path.with_name(f".{self.path.name}.old")
        self._lock: IO[bytes] | None = None
        self._present: Present | None = None
        if not self.path.name:
            raise OutputError(f"{path}: not a folder that can be replaced: name one of its own")

    def __enter__(self) -> FolderTarget:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.label} cannot be written ({error.strerror})") from None
        busy = f"{self.label} is being written by another kernelmill process"
        self._lock = take_lock(self.path.with_name(f"{self.path.name}.kernelmill"), busy)
        if self._old.exists() and not self.path.exists():
            os.rename(self._old, self.path)
        self._clear()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._lock is not None:
            self._clear()
            self._lock.close()

    def _clear(self) -> None:
        for left in (self._new, self._old):
            if left.exists():
                shutil.rmtree(left)

    def look(self) -> Present | None:
        if not self.path.exists():
            return None
        if not self.path.is_dir():
            raise OutputError(f"{self.label} is a file: name a folder")
        names = sorted(
            str(Path(top, name).relative_to(self.path))
            for top, _, found in os.walk(self.path)
            for name in found
        )
        if not names:
            return None
        if MANIFEST not in names:
            raise OutputError(
                f"{self.label} holds files that kernelmill did not make ({names[0]}): name another folder, or an empty one"
            )
        manifest = read_manifest(f"{self.label}/{MANIFEST}", (self.path / MANIFEST).read_bytes())
        made = manifest.get("files", {})
        for name in names:
            if name not in made and name != MANIFEST:
                raise OutputError(
                    f"{self.label} holds a file that kernelmill did not make ({name}): move it away, or name another folder"
                )
        hashes = {name: file_hash(self.path / name) for name in names}
        edited = [name for name in names if name in made and made[name].get("sha256") != hashes[name]]
        self._present = Present(hashes, manifest, edited, lambda: self._splits(names))
        return self._present

    def _splits(self, names: list[str]) -> dict[str, list[DataFile]]:
        card = self.path / "README.md"
        splits = data_files(names, card.read_bytes() if card.is_file() else None)
        return {
            split: [DataFile(self.path / name, f"{self.label}/{name}") for name in found]
            for split, found in splits.items()
        }

    def staging(self) -> Path:
        self._new.mkdir()
        return self._new

    def to_send(self, built: Built) -> int:
        return 0 if self._is_there(built) else built.size

    def _is_there(self, built: Built) -> bool:
        wanted = {name: file.sha256 for name, file in built.files.items()}
        return self._present is not None and self._present.files == wanted

    def put(self, built: Built) -> str | None:
        if self._is_there(built):
            return None
        for folder, _, names in os.walk(built.folder):
            for name in (*names, "."):
                to_disk(Path(folder, name))
        if self.path.exists():
            self._swap()
        else:
            os.rename(self._new, self.path)
        to_disk(self.path.parent)
        return self.label

    def _swap(self) -> None:
        try:
            _exchange(self._new, self.path)
        except OSError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            os.rename(self.path, self._old)
            os.rename(self._new, self.path)


def _exchange(one: Path, other: Path) -> None:
    """Swap two folders atomically with Linux's `renameat2`, for which Python has no wrapper."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), str(other))
