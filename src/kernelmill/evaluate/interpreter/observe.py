"""Observe one call of a candidate: launches, out-of-bounds accesses, races, streams, autotuned kernels.

The observer lives in the candidate's own process: what it reports is evidence, not proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelmill.evaluate.fake_gpu import streams

OOB_KEPT = 5
RACES_KEPT = 5
ORDERS = ("forward", "reverse")

_set_deterministic = torch._C._set_deterministic_algorithms
_get_deterministic = torch._C._get_deterministic_algorithms
_get_warn_only = torch._C._get_deterministic_algorithms_warn_only
_set_fill = torch._C._set_deterministic_fill_uninitialized_memory
_get_fill = torch._C._get_deterministic_fill_uninitialized_memory


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    `signature` indexes Observed.signatures; `config` is the autotuned config's number.
    """

    kernel: str
    qualname: str
    file: str
    grid: tuple[int, int, int]
    programs: int
    signature: int
    config: int | None
    suppressed: bool


@dataclass(frozen=True)
class Oob:
    """Lanes of one load, store or atomic that were outside every tensor passed to the kernel.

    `beyond` is the distance of the first bad lane from the nearest tensor argument (`argument`), in bytes:
    positive past its end, negative before its start.
    """

    kind: str
    kernel: str
    program: tuple[int, int, int]
    lanes: int
    of: int
    argument: str
    beyond: int


@dataclass(frozen=True)
class Race:
    """A location that two programs of one launch accessed, with a result that depends on their order.

    `programs` are the earlier one (None if there were several) and the later one. `offset` is in bytes from
    the start of the argument's storage.
    """

    kind: str
    kernel: str
    programs: tuple[tuple[int, int, int] | None, tuple[int, int, int] | None]
    argument: str
    offset: int


@dataclass
class Observed:
    """Everything observed between begin() and end()."""

    launches: list[Launch] = field(default_factory=list)
    signatures: list[dict[str, Any]] = field(default_factory=list)
    oob: list[Oob] = field(default_factory=list)
    oob_count: int = 0
    races: list[Race] = field(default_factory=list)
    race_count: int = 0
    unjoined: int = 0
    """Launches on another stream that the caller's stream did not wait for."""
    autotuned: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Observer:
    """Records what the running call does, and controls it: ablation, autotune config, poison."""

    def __init__(self) -> None:
        self.on_launch: Callable[[Any, dict[str, Any], tuple[int, int, int], dict[str, Any]], None] | None = (
            None
        )
        """Called before each launch with the kernel, its arguments by name, the grid and the other options."""
        self._reset(frozenset(), False, None, ORDERS[0])

    def _reset(self, suppress: frozenset[str], suppress_all: bool, config: int | None, order: str) -> None:
        self.seen = Observed()
        self.active = False
        self.config = config
        self.order, self.strict = order, False
        # Set by the autotuner for its next launch.
        self.next_config: int | None = None
        self._suppress = suppress
        self._suppress_all = suppress_all
        self._signature_index: dict[str, int] = {}
        self._flags: tuple[bool, bool, bool] | None = None

    def begin(
        self,
        suppress: frozenset[str] | None = None,
        suppress_all: bool = False,
        config: int | None = None,
        poison: bool = True,
        order: str = ORDERS[0],
        strict: bool = False,
    ) -> None:
        """Start observing. Kernels named in `suppress` do nothing.

        With `poison`, uninitialised memory reads as NaN. With the order "reverse", the last program of a
        launch runs first. A program that waits for an earlier one then waits forever. With `strict`, masked
        lanes read NaN unless a load says what they read, and no two lanes of a store may disagree.
        """
        if self.active:
            raise RuntimeError("observer.begin() called twice without end()")
        if order not in ORDERS:
            raise ValueError(f"order {order!r}: it is one of {', '.join(ORDERS)}")
        self._reset(suppress or frozenset(), suppress_all, config, order)
        self.active, self.strict = True, strict
        streams.begin()
        if poison:
            self._flags = (_get_deterministic(), _get_warn_only(), _get_fill())
            _set_deterministic(True, warn_only=True)
            _set_fill(True)

    def end(self) -> Observed:
        """Stop observing and return what was seen."""
        if not self.active:
            raise RuntimeError("observer.end() called without begin()")
        if self._flags is not None:
            deterministic, warn_only, fill = self._flags
            _set_deterministic(deterministic, warn_only=warn_only)
            _set_fill(fill)
        seen = self.seen
        seen.unjoined = streams.unjoined()
        self._reset(frozenset(), False, None, ORDERS[0])
        return seen

    def suppressed(self, name: str, qualname: str) -> bool:
        return self._suppress_all or name in self._suppress or qualname in self._suppress

    def launched(self, launch: Launch) -> None:
        if self.active:
            self.seen.launches.append(launch)

    def signature_index(self, signature: dict[str, Any], text: str) -> int:
        """The index of this signature in Observed.signatures, where it is added if its text is new."""
        index = self._signature_index.setdefault(text, len(self._signature_index))
        if index == len(self.seen.signatures):
            self.seen.signatures.append(signature)
        return index

    def out_of_bounds(self, event: Oob | None) -> None:
        """Count an access; those after the first few have no event."""
        self.seen.oob_count += 1
        if event is not None and len(self.seen.oob) < OOB_KEPT:
            self.seen.oob.append(event)

    def race(self, event: Race) -> None:
        self.seen.race_count += 1
        if len(self.seen.races) < RACES_KEPT:
            self.seen.races.append(event)

    def autotuned(self, kernel: str, configs: int) -> None:
        self.seen.autotuned[kernel] = configs

    def note(self, text: str) -> None:
        if text not in self.seen.notes:
            self.seen.notes.append(text)


observer = Observer()
