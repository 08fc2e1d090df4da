"""The folder of one decomposed model: write a sandboxed process's reply as files, atomically.

Also the manifest of an output folder, which lists the models whose proof holds.

Untrusted code ran in that process, so a reply may contain anything: file names are checked before any write.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import zlib
from pathlib import Path
from typing import Any

from kernelmill.base.problem_layout import natural
from kernelmill.base.python_text import ruff_format
from kernelmill.base.whole_file import write_whole
from kernelmill.decompose.errors import BadSource
from kernelmill.decompose.levels import FOLDERS, Level
from kernelmill.decompose.prove.tree import TREE
from kernelmill.decompose.write.tree_file import NotATree, TreeFile, typed
from kernelmill.errors import OutputError

MANIFEST = "manifest.txt"
MAX_FILES = 256 << 20
"""Maximum total bytes of one model's files."""
ORIGINAL = "verification/original.py"
_PLACES = re.compile(
    rf"(?:{TREE}|(?:{'|'.join(FOLDERS.values())})/\w+\.py|verification/\w+\.(?:py|json)"
    r"|steps/step_\d+_\w+/(?:children/\w+\.py|\w+\.(?:py|json)))",
    re.ASCII,
)


def unpacked(result: dict[str, Any]) -> dict[str, str]:
    """Extract and check the files in a `worker` reply."""
    found = opened(result)
    if not all(isinstance(text, str) for text in found.values()):
        raise BadSource("the reply is truncated or corrupt: it has no files")
    for path in found:
        if not _PLACES.fullmatch(path):
            raise BadSource(f"unexpected file {path[:100]!r} in the reply: not part of a decomposed model")
    if TREE not in found or ORIGINAL not in found:
        raise BadSource("the reply is truncated or corrupt: it has no tree")
    return found


def opened(result: dict[str, Any]) -> dict[str, Any]:
    """Decompress a `worker` reply."""
    unpack = zlib.decompressobj()
    try:
        text = unpack.decompress(base64.b64decode(str(result.get("packed")), validate=True), MAX_FILES)
        if unpack.unconsumed_tail:
            raise BadSource(f"its files have more than {MAX_FILES >> 20} MB")
        found = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        raise BadSource(f"the reply is truncated or corrupt: {error}") from None
    if not isinstance(found, dict):
        raise BadSource("the reply is truncated or corrupt: it has no files")
    return found


def write_model(folder: Path, files: dict[str, str], source: str) -> None:
    """Write the files into an empty folder. Python files are formatted, except the source and its copies."""
    first: dict[str, str] = {}
    for path, text in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8", "surrogatepass"))
        if path.endswith(".py") and text != source:
            first.setdefault(text, path)
    if not first:
        return  # without arguments, ruff would format the whole folder
    command = [*ruff_format(), "--no-cache", "--quiet", "--", *first.values()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise BadSource(f"an emitted file is not valid Python: {' '.join(done.stderr.split())[:300]}")
    for path, text in files.items():
        if text in first and first[text] != path:
            shutil.copyfile(folder / first[text], folder / path)


def read_tree(folder: Path) -> tuple[TreeFile, dict[str, Any]]:
    """Read a model's tree, typed and as raw JSON. Raises `OSError` or `NotATree`."""
    try:
        raw = json.loads((folder / TREE).read_bytes())
    except (ValueError, RecursionError) as error:
        raise NotATree(f"{TREE} is not valid JSON: {error}") from None
    return typed(raw), raw


def keep_levels(folder: Path, levels: tuple[Level, ...]) -> None:
    """Remove the problems of other levels, and record that in the tree.

    Kernels and the root stay, because the proof needs them. For every other node, its step keeps a copy of
    the text.
    """
    tree, raw = read_tree(folder)
    for node in tree.nodes.values():
        if node.level not in levels and node.level != "kernel" and node.id != tree.metadata.root:
            (folder / node.path).unlink()
    for name in FOLDERS.values():
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()
    raw["metadata"]["levels"] = [level for level in FOLDERS if level in levels or level == "kernel"]
    (folder / TREE).write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")


def may_replace(target: Path, source: Path, code: str) -> str | None:
    """Why a new decomposition of the source may not replace a folder; None if it may, or there is none."""
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    try:
        before = json.loads((target / TREE).read_bytes())["metadata"]["source_file"]
        same_text = (target / ORIGINAL).read_bytes().decode("utf-8", "surrogatepass") == code
    except (OSError, ValueError, LookupError, TypeError):
        return f"{target} exists and is not a decomposed model: remove it, or name another folder with -o"
    if same_text or Path(str(before)).resolve() == source.resolve():
        return None
    return f"{target} is the decomposition of {before}: remove it, or name another folder with -o"


def put_in_place(temporary: Path, target: Path) -> None:
    """Rename `temporary` to `target`; the previous folder is deleted after the new one is in place."""
    old = target.with_name(f".{target.name}.old")
    try:
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        temporary.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"{target} cannot be written ({error.strerror})") from None


def ours(out: Path) -> bool:
    """Whether a folder may hold our results.

    A set of problems has a manifest too, but one that lists files.
    """
    try:
        return not any(
            line.endswith(".py") for line in (out / MANIFEST).read_text(encoding="utf-8").splitlines()
        )
    except (FileNotFoundError, NotADirectoryError):
        return True  # the lock reports whether the folder can be created
    except (OSError, UnicodeDecodeError):
        return False


def write_manifest(out: Path) -> None:
    write_whole(out / MANIFEST, "".join(f"{place}\n" for place in proven(out)).encode())


def proven(out: Path) -> list[str]:
    """The models in an output folder whose proof holds, as `level3/5_AlexNet`."""
    found = []
    for file in out.glob(f"*/*/{TREE}"):
        if file.parent.name.startswith("."):
            continue  # left by a killed process
        try:
            tree, _ = read_tree(file.parent)
        except ValueError:
            continue  # an unreadable tree is not marked as proven
        if tree.metadata.verification_status == "PASS":
            found.append(f"{file.parent.parent.name}/{file.parent.name}")
    return sorted(found, key=natural)
