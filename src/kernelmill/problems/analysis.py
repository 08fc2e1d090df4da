"""Program analysis as an answerer: facts about a module, and what a stage derives from them.

Finding facts is slow, because a module runs in the sandbox. They are stored in the journal under a hash of
the code. What a stage derives from them is fast and computed anew each time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kernelmill.base.control import Stats
from kernelmill.errors import SourceError
from kernelmill.llm.engine import BadAnswer, Done, Failed, Outcome, Pending
from kernelmill.llm.journal import Journal, JournalReader
from kernelmill.problems.facts import ModuleFacts, module_facts
from kernelmill.sandbox import Sandbox

VERSION = "facts-1"
"""Part of every key: increase it when the same code would give different facts."""


class ModuleLike(Protocol):
    """The interface of what can be analysed."""

    @property
    def python_code(self) -> str: ...

    @property
    def entry_point(self) -> str | None: ...


Item = TypeVar("Item", bound=ModuleLike)


class _Found(msgspec.Struct):
    facts: ModuleFacts | None = None
    error: str | None = None


_KEPT = 1_000
_lately: dict[str, str] = {}
"""Facts that another stage of this process has found, by key: `kernelmill run` asks for the same modules again."""


class FactStore:
    """Facts about modules, read from the journal or computed."""

    def __init__(self, journal: JournalReader, sandbox: Sandbox | None, traced: bool, timeout: float) -> None:
        """`traced` is part of the key, so that shapes are found once torch is installed.

        A dry run has no sandbox.
        """
        self._journal = journal
        self._sandbox = sandbox
        self._traced = traced
        self._decoder = msgspec.json.Decoder(_Found)
        self._timeout = timeout

    def key(self, module: ModuleLike) -> str:
        asked = f"{VERSION}\n{self._traced}\n{module.entry_point}\n{module.python_code}"
        return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()

    def known(self, key: str) -> _Found | None:
        found = self._journal.fact(key) or self._journal.fact(self._passing(key))
        return None if found is None else self._decoder.decode(found)

    def _passing(self, key: str) -> str:
        """Return the key for a module that exceeded a limit, which is valid for this timeout only."""
        return f"{key}:{self._timeout:g}"

    async def find(self, module: ModuleLike) -> ModuleFacts:
        """Return the module's facts. Raises `SourceError` if the code cannot be read at all."""
        key = self.key(module)
        found = self.known(key)
        if found is None:
            if (text := _lately.get(key)) is not None:
                found = self._decoder.decode(text)
            else:
                found = await self._found(module)
                text = msgspec.json.encode(found).decode()
            passing = found.facts is not None and _may_pass(found.facts)
            if not passing:
                _lately[key] = text
                if len(_lately) > _KEPT:
                    del _lately[next(iter(_lately))]
            if isinstance(self._journal, Journal):
                await self._journal.add_fact(self._passing(key) if passing else key, text)
        if found.facts is None:
            raise SourceError(found.error or "no facts")
        return found.facts

    async def _found(self, module: ModuleLike) -> _Found:
        try:
            return _Found(facts=await module_facts(module.python_code, module.entry_point, self._sandbox))
        except SourceError as error:
            return _Found(error=str(error))


def _may_pass(facts: ModuleFacts) -> bool:
    """Whether another run, on a less busy machine or with other limits, may find more."""
    return facts.trace is None and (facts.trace_error or "").startswith(
        ("timeout", "out of memory", "crashed")
    )


class Analysis(Generic[Item]):
    """Answers from facts alone. Needs no model, and cannot tell what the code does not show."""

    free = True

    def __init__(
        self, store: FactStore, derive: Callable[[Item, ModuleFacts], dict[str, Any]], stats: Stats
    ) -> None:
        self.concurrency = max(1, os.cpu_count() or 1)
        self._store = store
        self._derive = derive
        self._stats = stats

    def key(self, item: Item) -> str:
        return self._store.key(item)

    async def outcome(self, item: Item, key: str) -> Outcome:
        found = self._store.known(key)
        if found is None:
            return Pending()
        if found.facts is None:
            return Failed(found.error or "no facts", [])
        try:
            return Done(self._derive(item, found.facts))
        except BadAnswer as bad:
            return Failed(str(bad), [])

    def spent(self, item: Item, key: str) -> list[float | None]:
        return []

    async def answer(self, item: Item, key: str) -> None:
        self._stats.in_flight += 1
        try:
            await self._store.find(item)
        except SourceError:
            return  # the error is stored, and `outcome` reads it
        finally:
            self._stats.in_flight -= 1

    def check_breaker(self) -> None:
        """Do nothing: no server is called."""
