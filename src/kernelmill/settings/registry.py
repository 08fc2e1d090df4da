"""Registries: entries by name, those built in and those of installed plug-ins.

    REWARDS = Registry("reward", "kernelmill.rewards", Reward, {"correct": Reward(...)})

A plug-in is any installed distribution with entry points of a registry's group. The entry point's name is the
entry's name, and its value names an instance of the entry's class:

    [project.entry-points."kernelmill.rewards"]
    faster = "my_package.rewards:FASTER"

The names of plug-ins are read when a registry is first asked for more than its built-in entries. A plug-in is
imported when its name is used, so a broken one fails nobody else. A name with two owners, built in or not, is
an error for whoever uses it. Plug-ins run with all rights of the process: there is no sandbox around them.

`stage_classes` has the settings class of every stage, as `flow` names them. Needs the standard library alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kernelmill.errors import ConfigError
from kernelmill.flow import STAGES
from kernelmill.settings.arguments import nearest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from kernelmill.settings.base import Settings

E = TypeVar("E")
GROUPS = "kernelmill."
"""The prefix of the entry point groups."""


class Plugin(NamedTuple):
    point: EntryPoint
    origin: str
    """The distribution's name and version."""


class Registry(Mapping[str, E]):
    """The entries of one kind. As a mapping it holds the built-in ones; `find` also knows those of plug-ins."""

    def __init__(
        self, kind: str, group: str, entry: type[E], builtin: Mapping[str, E], also: str = ""
    ) -> None:
        self.kind = kind
        self.group = group
        self._entry = entry
        self._builtin = dict(builtin)
        self._also = [also] if also else []
        """A pattern of names that the caller of `find` accepts besides; for messages."""
        self._loaded: dict[str, E] = {}

    def __getitem__(self, name: str) -> E:
        return self._builtin[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._builtin)

    def __len__(self) -> int:
        return len(self._builtin)

    def names(self) -> list[str]:
        """All names that `find` knows. Imports no plug-in."""
        return list(dict.fromkeys([*self._builtin, *(one.point.name for one in self.plugins())]))

    def listed(self) -> str:
        """All names, for a help text."""
        return ", ".join([*self.names(), *self._also])

    def plugins(self) -> list[Plugin]:
        return [one for one in plugins() if one.point.group == self.group]

    def origin(self, name: str) -> str | None:
        """The distribution that a name comes from, with its version; None for a built-in name."""
        mine = () if name in self._builtin else self.plugins()
        return next((one.origin for one in mine if one.point.name == name), None)

    def find(self, name: str) -> E:
        """The entry of this name. Imports the plug-in that has it. Raises `ConfigError`."""
        if name not in self._loaded:
            self._loaded[name] = self._find(name)
        return self._loaded[name]

    def _find(self, name: str) -> E:
        found = [one for one in self.plugins() if one.point.name == name]
        owners = [*(["kernelmill"] if name in self._builtin else []), *(one.origin for one in found)]
        if len(owners) > 1:
            raise ConfigError(
                f"{self.kind} {name} has several owners, {' and '.join(owners)}: "
                f"uninstall a plug-in, or rename what it adds"
            )
        if found:
            return self._load(found[0])
        if name not in self._builtin:
            raise ConfigError(f"unknown {self.kind} {name[:40]} ({nearest(name, self.names(), self._also)})")
        return self._builtin[name]

    def _load(self, plugin: Plugin) -> E:
        point = plugin.point
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:  # noqa: BLE001  an import may raise anything
            why = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        else:
            if isinstance(loaded, self._entry):
                return loaded
            why = f"{point.value} is a {type(loaded).__name__}, not a {self._entry.__name__}"
        raise ConfigError(
            f"{self.kind} {point.name}: the plug-in {plugin.origin} does not work ({why}): "
            f"update or uninstall it"
        )


@cache
def plugins() -> list[Plugin]:
    """The entry points of all our groups that are installed. Imports none of them."""
    from importlib.metadata import distributions  # slow to import, and rarely needed

    found: dict[str, list[Plugin]] = {}
    for one in distributions():
        # Nearly every distribution is passed over without parsing its entry points.
        if f"[{GROUPS}" in (one.read_text("entry_points.txt") or ""):
            mine = [point for point in one.entry_points if point.group.startswith(GROUPS)]
            # Of one distribution that is there twice, the first on the path is the one that is imported.
            found.setdefault(
                one.metadata["Name"], [Plugin(it, f"{one.metadata['Name']} {one.version}") for it in mine]
            )
    return [plugin for mine in found.values() for plugin in mine]


def referenced(reference: str) -> Any:
    """What `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


@cache
def stage_classes() -> dict[str, type[Settings]]:
    return {stage.name: referenced(stage.settings) for stage in STAGES}
