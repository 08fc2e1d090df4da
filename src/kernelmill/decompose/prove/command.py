"""`kernelmill prove`: prove decomposed models again from their files alone, ours or anybody's.

The exit code is 1 if a claim failed or could not be tried. Each such claim gets one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmill.base.problem_layout import natural
from kernelmill.base.terminal import plain
from kernelmill.decompose.model_folder import MANIFEST, ours, write_manifest
from kernelmill.decompose.prove.prover import MEMORY_MB, TIMEOUT, Proof, Prover, prove_folder
from kernelmill.decompose.prove.tree import TREE
from kernelmill.errors import SourceError
from kernelmill.runner import ItemProgress, Threads, run_all
from kernelmill.settings.options import ToolSettings, argument, option, processors, workers_option

_MAX_LINES = 20


@dataclass(frozen=True, kw_only=True)
class ProveSettings(ToolSettings):
    """Prove decomposed models from their files: each step, and the kernels put together."""

    epilog = "Exit codes: 0 all proven; 1 a claim failed or could not be tried; 2 wrong usage."
    sources: tuple[Path, ...] = argument("a decomposed model, or a folder above several", "OUT")
    workers: int | None = workers_option("claims")
    timeout: int = option(int(TIMEOUT), "seconds one claim may take", least=1, metavar="SECONDS")
    memory: int = option(MEMORY_MB, "memory a claim", least=256, metavar="MB")


def main(given: ProveSettings) -> int:
    """Run the command. Raises `MillError` if there is nothing to read or results cannot be written."""
    workers = processors(given.workers)
    folders = list(dict.fromkeys(folder for source in given.sources for folder in model_folders(source)))
    try:
        with Prover(workers, float(given.timeout), given.memory) as prover:
            proofs = run_all(
                folders,
                lambda _: Threads(lambda folder: prove_folder(folder, prover), workers, prover),
                ItemProgress("models tried"),
                lambda folder: folder.name,
            )
    finally:
        for out in {folder.resolve().parent.parent for folder in folders}:
            if (out / MANIFEST).is_file() and ours(out):
                write_manifest(out)
    print(table(proofs))
    return 0 if all(proof.status == "PASS" for proof in proofs) else 1


def model_folders(source: Path) -> list[Path]:
    """The decomposed models at or below a path, in natural order."""
    if not source.is_dir():
        what = "a file: name the folder of its model" if source.exists() else "no such folder"
        raise SourceError(f"{source}: {what}")
    if source.name in ("", ".."):
        source = source.resolve()  # a model is named after its folder
    files = [file.relative_to(source) for file in source.rglob(TREE)]
    # Folders that a killed process left have a name that starts with a dot.
    hidden = [file for file in files if any(part.startswith(".") for part in file.parts)]
    found = sorted((source / file.parent for file in files if file not in hidden), key=natural)
    if not found:
        raise SourceError(f"{source}: no {TREE} at or below it: name what kernelmill decompose wrote")
    return found


def table(proofs: Sequence[Proof]) -> str:
    """A row per model, a line per failed claim, and the totals."""
    rows = [("model", "steps", "composition", "coverage", "numbers at", "seconds")]
    rows += [
        (
            plain(proof.name),
            f"{proof.passed}/{proof.steps}",
            proof.composition,
            "-" if proof.coverage is None else f"{proof.coverage:.4g}%",
            "-"
            if proof.composition in ("NOT_RUN", "ERROR")
            else "reduced size"
            if proof.reduced
            else "full size",
            f"{proof.seconds:.1f}",
        )
        for proof in proofs
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    for proof in proofs:
        lines += _reasons(proof)
    counts = {status: sum(p.status == status for p in proofs) for status in ("PASS", "FAIL", "ERROR")}
    summary = f"{counts['PASS']:,} of {len(proofs):,} proven"
    rest = [
        f"{count:,} {word}"
        for word, count in (("failed", counts["FAIL"]), ("not tried", counts["ERROR"]))
        if count
    ]
    return "\n".join([*lines, "", ", ".join([summary, *rest])])


def _reasons(proof: Proof) -> Iterable[str]:
    for line in proof.lines[:_MAX_LINES]:
        yield f"{proof.status} {plain(proof.name)}: {plain(' '.join(line.split()))}"
    if len(proof.lines) > _MAX_LINES:
        yield f"{proof.status} {plain(proof.name)}: and {len(proof.lines) - _MAX_LINES:,} more"
