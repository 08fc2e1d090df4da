"""The folder of a problem set.

It holds `level1/ … level4/`, `manifest.txt`, a README of counts, and `problems.json` with the results of the
checks.

Problem files are the texts as they were read. `problems.json` is written last: its presence means that the
set is complete. Until then there is a journal of the finished checks, from which an interrupted import is
recognised and resumed.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernelmill.base.problem_layout import maker_of
from kernelmill.base.whole_file import encoded, write_whole
from kernelmill.errors import OutputError, SourceError
from kernelmill.problems.benchmark_rows import SET_RECORD
from kernelmill.problems.sets.problem import Checked, Problem, Rejected

JOURNAL = ".checks.jsonl"
"""The finished checks of an import in progress: after an interruption it resumes from there."""


class SetRecord(Struct, frozen=True):
    """The file `SET_RECORD`."""

    name: str
    benchmark: bool
    """Whether it measures models, and so must stay out of training sets."""
    source: dict[str, Any]
    version: str
    problems: list[Checked]
    rejected: list[Rejected]


def read_set(folder: Path) -> SetRecord:
    """Read a set's record. Raises `SourceError` if the folder holds no imported set."""
    try:
        return msgspec.json.decode((folder / SET_RECORD).read_bytes(), type=SetRecord)
    except FileNotFoundError:
        other = f": kernelmill problems import SOURCE --into {folder} makes it"
        raise SourceError(f"{folder} holds no imported problems{maker_of(folder) or other}") from None
    except OSError as error:
        raise SourceError(f"{folder / SET_RECORD}: cannot be read ({error.strerror})") from None
    except msgspec.DecodeError as error:
        raise SourceError(
            f"{folder / SET_RECORD}: cannot be read ({error}): remove {folder} and import again"
        ) from None


def known_set(folder: Path) -> SetRecord | None:
    """Return the record of an earlier import, if any. Raises if the folder holds something else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not (folder / SET_RECORD).is_file():
        if (folder / JOURNAL).is_file():
            return None  # an import was interrupted
        raise OutputError(
            f"{folder} is there and holds no imported problems: name another folder with --into"
        )
    return read_set(folder)


def noted_checks(folder: Path) -> list[Checked]:
    """Return the finished checks of an interrupted import.

    A torn line is skipped: the interruption caused it.
    """
    try:
        lines = (folder / JOURNAL).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            found.append(msgspec.json.decode(line, type=Checked))
    return found


def note_check(folder: Path, one: Checked) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / JOURNAL).open("ab") as file:
        file.write(b"\n" + msgspec.json.encode(one))  # newline first: a torn line stays separate


def code_of(folder: Path, one: Checked) -> str:
    """Return the text of a problem. Raises `SourceError` if it is not what was checked."""
    file = folder / one.file
    try:
        code = file.read_bytes().decode("utf-8", "surrogatepass")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{file}: cannot be read ({error}): import again") from None
    if Problem(one.level, one.problem_id, one.name, code, str(file)).sha256 != one.sha256:
        raise SourceError(f"{file} is not what was imported and checked: import again")
    return code


def write_set(folder: Path, record: SetRecord, codes: dict[str, str], before: list[Checked]) -> None:
    """Write the set. Files of an earlier import that are not in this one are removed."""
    # While there is no record, the journal has everything: the checks, and which files belong to the set.
    noted = b"".join(msgspec.json.encode(one) + b"\n" for one in (*before, *record.problems))
    write_whole(folder / JOURNAL, noted)
    (folder / SET_RECORD).unlink(missing_ok=True)
    for one in record.problems:
        write_whole(folder / one.file, codes[one.file].encode("utf-8", "surrogatepass"))
    for gone in {one.file for one in before} - set(codes):
        (folder / gone).unlink(missing_ok=True)
    listing = "".join(f"{one.file}\n" for one in record.problems)
    write_whole(folder / "manifest.txt", listing.encode())
    write_whole(folder / "README.md", readme(record).encode())
    write_whole(folder / SET_RECORD, encoded(record))
    (folder / JOURNAL).unlink(missing_ok=True)


def readme(record: SetRecord) -> str:
    lines = [f"# {record.name}", ""]
    origin = record.source.get("repo") or record.source.get("path")
    lines.append(f"Imported by kernelmill from {origin}; the texts are as they were there.")
    if record.benchmark:
        lines += [
            "",
            "This is a benchmark: it measures models, and must stay out of what they are trained on.",
        ]
    lines += ["", "| level | problems | run at full size | run small | admitted |", "|---|---|---|---|---|"]
    for level, mine in by_level(record).items():
        lines.append(f"| {level} | {' | '.join(map(str, counts(mine)))} |")
    lines.append(f"| all | {' | '.join(map(str, counts(record.problems)))} |")
    if random := sum(one.random_weights for one in record.problems):
        lines += [
            "",
            f"{random} problems use models of the Hugging Face Hub: they were built from their sizes, with random weights.",
        ]
    if record.rejected:
        reasons = Counter(one.reason.partition(":")[0] for one in record.rejected)
        lines += [
            "",
            "Not imported:",
            "",
            *(f"- {number}: {reason}" for reason, number in reasons.most_common()),
        ]
    lines += ["", f"`manifest.txt` lists the files, `{SET_RECORD}` says what the checks found."]
    return "\n".join(lines) + "\n"


def by_level(record: SetRecord) -> dict[int, list[Checked]]:
    found: dict[int, list[Checked]] = {}
    for one in record.problems:
        found.setdefault(one.level, []).append(one)
    return found


def level_lines(found: Mapping[Any, Iterable[int]]) -> list[str]:
    """A table of `counts` by level, for people."""
    lines = ["level  problems  full size  small  admitted"]
    for level, mine in found.items():
        lines.append(f"{level:>5}  {{:>8}}  {{:>9}}  {{:>5}}  {{:>8}}".format(*mine))
    return lines


def counts(problems: list[Checked]) -> tuple[int, int, int, int]:
    """Count all problems, those that ran at full size, those that ran small, and those admitted."""
    full = sum(one.full is not None for one in problems)
    small = sum(one.shrunk is not None for one in problems)
    return len(problems), full, small, sum(one.admitted for one in problems)
