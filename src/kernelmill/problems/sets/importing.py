"""`kernelmill problems import`: problems from any source into a folder, each checked once."""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

from kernelmill import __version__
from kernelmill.base.terminal import duration, plain, say
from kernelmill.decompose.collect import collect, write
from kernelmill.decompose.prove.command import model_folders
from kernelmill.decompose.prove.tree import TREE
from kernelmill.errors import SourceError
from kernelmill.problems.benchmark_rows import is_benchmark_set
from kernelmill.problems.open_set import open_problems
from kernelmill.problems.sets.checks import check_all
from kernelmill.problems.sets.folder import (
    SetRecord,
    by_level,
    counts,
    known_set,
    level_lines,
    note_check,
    noted_checks,
    write_set,
)
from kernelmill.problems.sets.problem import ReadSet, Rejected, read_from, read_problems
from kernelmill.settings.config import secret

_SHOWN = 10


def import_problems(
    spec: str,
    into: Path | None,
    benchmark: bool | None,
    level: int | None,
    workers: int,
    timeout: float,
    force: bool,
) -> int:
    started = time.monotonic()
    name, source, problems, rejected, marked = _read(spec, level)
    if not problems:
        why = f": {rejected[0].where}: {rejected[0].reason}" if rejected else ""
        raise SourceError(f"{spec}: no problem in it{why}")
    folder = into or Path("data") / name
    before = known_set(folder)
    earlier = [*(before.problems if before else []), *noted_checks(folder)]
    known = {} if force else {one.sha256: one for one in earlier}
    say(
        f"{name}: {len(problems):,} problems from {source.name}, {sum(p.sha256 in known for p in problems):,} known already"
    )
    checked, failed = check_all(problems, known, partial(note_check, folder), workers, timeout)
    if not checked:
        raise SourceError(
            f"{spec}: no problem of it runs here; the first: {failed[0].where}: {failed[0].reason}"
        )
    # KernelBench is always a benchmark by default; for other sets the user decides.
    is_benchmark = marked if benchmark is None else benchmark
    record = SetRecord(name, is_benchmark, source.origin, __version__, checked, [*rejected, *failed])
    codes = {one.file: one.code for one in problems}
    write_set(folder, record, {one.file: codes[one.file] for one in checked}, earlier)
    print("problems import")
    levels = {level: counts(mine) for level, mine in by_level(record).items()}
    print("\n".join(level_lines({**levels, "all": counts(checked)})))
    if random := sum(one.random_weights for one in checked):
        print(f"{random} with models of the Hub: built from their sizes, with random weights")
    for one in record.rejected[:_SHOWN]:
        print(plain(f"not imported: {one.where}: {one.reason}"))
    if len(record.rejected) > _SHOWN:
        print(f"and {len(record.rejected) - _SHOWN:,} more that are not imported")
    if is_benchmark:
        print(f"{'benchmark':<12}yes: what is exported from it says so")
    print(f"{'time':<12}{duration(time.monotonic() - started)}\n{'output':<12}{folder}")
    return 0


def _read(spec: str, level: int | None) -> ReadSet:
    """Read the problems of a source.

    Of decomposed models these are the kernels and fusions, as `collect` selects them.
    """
    token = secret("HF_TOKEN")
    if not (Path(spec).is_dir() and any(Path(spec).rglob(TREE))):
        return read_problems(spec, token, level)
    found = collect(model_folders(Path(spec)), ("kernel", "fusion"))
    if not found.works:
        raise SourceError(f"{spec}: no model in it is proven; the first: {found.left_out[0]}")
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / Path(spec).resolve().name
        write(found, target)
        name, source = open_problems(str(target), token)
        source.name, source.origin = spec, {"kind": "decomposition", "path": spec}
        read = read_from(name, source, level)
    benchmark = any(is_benchmark_set({"path": file}) for file in found.models.values())
    left_out = [Rejected(spec, reason) for reason in found.left_out]
    return read._replace(rejected=[*read.rejected, *left_out], benchmark=read.benchmark or benchmark)
