"""The module in a row of any kind: KernelBook rows, KernelBench rows (`code`), evals rows (their `info`).

`ModuleReader` is for stages that work on the module: `specs` and `synthesize`. It finds the class, keeps
the other columns, and can drop rows by reward. Stages that only compare code (`decontaminate`, and the
split of `publish`) use `base.rows.ModuleCodeReader`. Neither runs the module: `facts` does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from kernelmill.base.rows import Drop, Info, KernelBookRow, Label, Row, RowReader, read_info
from kernelmill.errors import BadRow, SourceError
from kernelmill.problems.source import read_source


class Module(NamedTuple):
    """A module, and the row it came from."""

    module_name: str
    python_code: str
    given: AnyRow

    @property
    def entry_point(self) -> str:
        return self.module_name

    @property
    def problem_name(self) -> str:
        """The problem's name, if the row has one: in KernelBench's style every class is `Model`."""
        return self.given.name or self.module_name

    @property
    def class_name(self) -> str:
        return f"{self.module_name}New"


class AnyRow(KernelBookRow, kw_only=True):
    """A row of any kind that holds a module: KernelBook, KernelBench (`code`) or evals (`info`)."""

    python_code: str | None = None  # type: ignore[assignment]
    code: str | None = None
    info: Info | str | None = None
    reward: float | None = None
    name: str | UnsetType | None = UNSET
    level: Label | UnsetType = UNSET
    problem_id: Label | UnsetType = UNSET
    problem_name: Any = UNSET
    problem_level: Any = UNSET
    problem_uuid: Any = UNSET

    def __post_init__(self) -> None:
        """Copy the problem's name, level and uuid from the columns that evals rows use."""
        if self.name is UNSET and isinstance(self.problem_name, str):
            self.name = self.problem_name
        if self.level is UNSET and isinstance(self.problem_level, int | float | str):
            self.level = self.problem_level
        if self.uuid is UNSET and isinstance(self.problem_uuid, int | float | str):
            self.uuid = self.problem_uuid


class ModuleReader:
    """Finds the module in a row.

    With a `threshold`, drops rows whose reward, if they have one, is not above it.
    """

    def __init__(self, threshold: float | None = None) -> None:
        self._threshold = threshold
        self._read = RowReader(AnyRow)

    def take(self, row: Row) -> Module | Drop:
        """Return the row's module, or why it is dropped. Raises `BadRow` if the row has no code."""
        given = self._read(row)
        info = read_info(row.where, given.info) if given.info is not None else None
        code = given.python_code or given.code or (info.python_code if info else None)
        if not code:
            raise BadRow(
                row.where, "the column is missing, and so are code and info.python_code", "$.python_code"
            )
        if self._threshold is not None and given.reward is not None and not given.reward > self._threshold:
            return Drop(
                f"reward {given.reward:g} is not above {self._threshold:g}", "reward not above the threshold"
            )
        name = given.entry_point or given.module_name or (info.module_name if info else None)
        if name is None:
            try:
                name = read_source(code).entry_point
            except SourceError as error:
                return Drop(f"the module cannot be read: {error}", "the module cannot be read")
        if given.triton_code is UNSET and info is not None and info.triton_code is not None:
            given.triton_code = info.triton_code
        return Module(name, code, given)
