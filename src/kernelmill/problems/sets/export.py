"""`kernelmill problems export`: an imported set as prompts for RL trainers, whose formats are in `trainers`.

Problems are ordered by level and id. Rows of a benchmark have a last column `benchmark: true`. It comes after
the columns of the format, where trainers ignore it, and is in the row itself, so that it survives merging and
copying.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.base.problem_layout import KERNELBENCH
from kernelmill.base.task_rules import MARKS, Mark, rules
from kernelmill.base.whole_file import encoded, write_whole
from kernelmill.errors import ConfigError, OutputError
from kernelmill.llm.prompts import Prompt
from kernelmill.problems.sets.folder import SetRecord, code_of, read_set
from kernelmill.problems.sets.levels import (
    EXPORT_RECORD,
    PREFIX,
    ExportRecord,
    LevelRecord,
    level_file,
    merged_file,
)
from kernelmill.problems.sets.merge import merged, read_levels, written
from kernelmill.problems.sets.problem import Checked
from kernelmill.problems.sets.rl_rows import TASK_TYPE
from kernelmill.problems.sets.trainers import TRAINERS, lines


class Prompts(NamedTuple):
    system: Prompt
    user: Prompt
    answer: Mark = "answer"

    def messages(self, code: str, name: str) -> list[dict[str, str]]:
        values = {
            "code": code.rstrip("\n"),
            "problem_name": name,
            "module_name": "Model",
            "class_name": "ModelNew",
            "answer": MARKS[self.answer],
            # The service allows TF32 only if the request asks for it, and our requests do not.
            **rules(tf32=False),
        }
        return [
            {"role": "system", "content": self.system.render(**values)},
            {"role": "user", "content": self.user.render(**values)},
        ]


class Exported(NamedTuple):
    files: list[Path]
    rows: dict[int, int]
    left_out: int
    benchmark: bool


def export(
    folder: Path, output: Path, kind: str, prompts: Prompts, levels: list[int] | None, admitted: bool
) -> Exported:
    record = read_set(folder)
    wanted = [one for one in record.problems if levels is None or one.level in levels]
    chosen = [one for one in wanted if one.admitted or not admitted]
    if not chosen:
        there = sorted({one.level for one in record.problems})
        raise ConfigError(
            f"{folder}: no problem is left to export (its levels: {', '.join(map(str, there))})"
        )
    rows = [(one, _row(folder, record, one, prompts)) for one in chosen]
    if output.exists() and not output.is_dir():
        raise OutputError(f"{output} is a file: name a folder")
    trainer = TRAINERS.find(kind)
    if trainer.rows is None:
        files = _write_levels(output, record, rows)
    else:
        files = [output / f"{PREFIX}_{kind}.{trainer.suffix}"]
        write_whole(files[0], trainer.encode(list(trainer.rows([row for _, row in rows]))))
    count = {
        level: sum(one.level == level for one in chosen) for level in sorted({one.level for one in chosen})
    }
    return Exported(files, count, len(wanted) - len(chosen), record.benchmark)


def _row(folder: Path, record: SetRecord, one: Checked, prompts: Prompts) -> dict[str, Any]:
    """Build a row in slime's format; the other formats are made from it."""
    code = code_of(folder, one)
    source = PREFIX if record.name == KERNELBENCH else f"{record.name}_triton"
    row = {
        "prompt": prompts.messages(code, one.name),
        "label": code,
        "extra_info": {
            "level": one.level,
            "problem_id": str(one.problem_id),
            "problem_name": one.name,
            "data_source": source,
            "task_type": TASK_TYPE,
        },
        "instance_id": f"{source}_lv{one.level}_{one.problem_id}",
    }
    return {**row, "benchmark": True} if record.benchmark else row


def _write_levels(output: Path, record: SetRecord, rows: list[tuple[Checked, dict[str, Any]]]) -> list[Path]:
    """Write the level files, the merged file, and last the record that `verify` checks them against."""
    (output / EXPORT_RECORD).unlink(missing_ok=True)
    found: dict[int, LevelRecord] = {}
    files = []
    for level in sorted({one.level for one, _ in rows}):
        mine = [row for one, row in rows if one.level == level]
        content = lines(mine)
        write_whole(level_file(output, level), content)
        found[level] = LevelRecord(len(mine), hashlib.sha256(content).hexdigest())
        files.append(level_file(output, level))
    whole = merged_file(output, sorted(found))
    write_whole(whole, written(merged(read_levels(output, sorted(found)))))
    write_whole(output / EXPORT_RECORD, encoded(ExportRecord(record.name, record.benchmark, found)))
    return [*files, whole, output / EXPORT_RECORD]
