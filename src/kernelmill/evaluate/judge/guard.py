"""Detect, from inside the candidate's process, what a candidate does that no kernel needs.

Two monitors, both started before its code runs:

- an audit hook, which Python cannot remove: it records access to frames, listing of objects, loading of
  native libraries, replacement of code objects, attempts to start processes or open sockets, and new threads;
- a fingerprint of the functions of torch, triton, numpy, Python and this evaluator, compared after each step
  for which the judge asks for it (`look`).

An event is strong evidence. The absence of events proves nothing: the proof is in the outputs, which are
compared elsewhere.
"""

from __future__ import annotations

import builtins
import gc
import itertools
import json
import math
import operator
import os
import random
import socket
import struct
import sys
import threading
import time
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime import autotuner, interpreter, jit

_EVENTS = {
    "gc.get_objects": "E2.lists_objects",
    "gc.get_referrers": "E2.lists_objects",
    "gc.get_referents": "E2.lists_objects",
    "sys._getframe": "A12.looks_at_frames",
    "sys._current_frames": "A12.looks_at_frames",
    "sys._getframemodulename": "A12.looks_at_frames",
    "sys.settrace": "E1.traces",
    "sys.setprofile": "E1.traces",
    "sys.addaudithook": "E1.audits",
    "ctypes.dlopen": "D7.native_code",
    "ctypes.dlsym": "D7.native_code",
    "ctypes.string_at": "D7.native_code",
    "ctypes.cdata": "D7.native_code",
    "ctypes.call_function": "D7.native_code",
    "code.__new__": "D6.makes_code",
    "object.__setattr__": "D6.replaces_code",
    "object.__delattr__": "D6.replaces_code",
    "os.fork": "E11.starts_processes",
    "os.forkpty": "E11.starts_processes",
    "os.exec": "E11.starts_processes",
    "os.posix_spawn": "E11.starts_processes",
    "os.system": "E11.starts_processes",
    "os.kill": "E11.signals",
    "os.killpg": "E11.signals",
    "signal.pthread_kill": "E11.signals",
    "subprocess.Popen": "E11.starts_processes",
    "socket.__new__": "E13.network",
    "socket.getaddrinfo": "E13.network",
    "_thread.start_new_thread": "D2.threads",
    "_thread.start_joinable_thread": "D2.threads",
    "mmap.__new__": "D7.maps_memory",
}
_FRAME_ATTRIBUTES = {"tb_frame", "gi_frame", "cr_frame", "ag_frame", "__code__"}
# Standard library files that act for their caller: the hook looks through them for the candidate's frame.
_GO_BETWEENS = ("/inspect.py", "/traceback.py", "/threading.py", "/subprocess.py", "/ctypes/__init__.py",
                "/concurrent/futures/thread.py", "/socket.py", "/mmap.py")  # fmt: skip
_KEPT = 20
_HOPS = 12
_OURS = ("kernelmill.evaluate", "kernelmill.torch_calls")
_is, _code_of = operator.is_, operator.attrgetter("__code__")


class Fingerprint:
    """A snapshot of torch, triton, numpy, Python and this evaluator, to detect later changes."""

    def __init__(self) -> None:
        self._threads = threading.active_count()
        self._flags = _settings()
        owners = _owners()
        modules = {id(owner) for owner in owners.values() if isinstance(owner, types.ModuleType)}
        for name, owner in list(owners.items()):
            if name.startswith(_OURS):
                owners |= {
                    f"{name}.{key}": value
                    for key, value in vars(owner).items()
                    if isinstance(value, type) and value.__module__ == name
                }
        owners["sys.modules"] = sys.modules
        self.spaces = [_space(name, owner, modules) for name, owner in owners.items()]

    def tampered(self) -> list[str]:
        """Names that have been replaced or removed. Added names are ignored."""
        changed = [name for space in self.spaces if not space.as_it_was() for name in space.changed()]
        for function in self.recoded():
            changed += [f"{name}.__code__" for space in self.spaces for name in space.names_of(function)]
        return changed[:_KEPT]

    def recoded(self) -> list[Any]:
        """Functions whose code may have been replaced."""
        return [function for function, code in self._codes if _code_of(function) is not code]

    _codes: Sequence[tuple[Any, Any]] = ()

    def watch_codes(self) -> None:
        """Remember the code of all functions: for a process without an audit hook."""
        functions = [one for space in self.spaces for one in space.functions()]
        self._codes = [(one, _code_of(one)) for one in functions]

    def settings(self) -> list[str]:
        """Names of torch's global settings that have changed."""
        return [name for name, value in _settings().items() if self._flags[name] != value]

    def threads(self) -> int:
        """The number of threads beyond those at the time of the snapshot."""
        return threading.active_count() - self._threads


class _Space:
    """The names of one namespace that refer to callables or to watched modules.

    Other data may change legitimately.
    """

    def __init__(self, name: str, owner: Any, places: dict[str, int]) -> None:
        self.name, self.owner, self.places = name, owner, places
        self._names = _names(owner)
        self._all = tuple(self._names.values())

    def __len__(self) -> int:
        return len(self._all)

    def as_it_was(self) -> bool:
        """Whether no value has changed. Called often, so it has no loop in Python. Names are only ever added
        at the end.
        """
        return len(self._names) >= len(self._all) and all(map(_is, self._names.values(), self._all))

    def changed(self) -> list[str]:
        """The watched names whose value has changed."""
        found = [key for key, place in self.places.items() if self._names.get(key) is not self._all[place]]
        return [f"{self.name}.{key}" for key in found]

    def names_of(self, value: Any) -> list[str]:
        return [f"{self.name}.{key}" for key in self.places if self._names.get(key) is value]

    def functions(self) -> list[Any]:
        values = map(self._names.get, self.places)
        return [value for value in values if type(value) is types.FunctionType]


_prepared: dict[str, _Space] = {}
"""What a server has found, for its children."""


def prepare() -> None:
    """Find in a server what its children will watch."""
    _prepared.update({space.name: space for space in Fingerprint().spaces})


def _names(owner: Any) -> Any:
    return owner if isinstance(owner, dict) else vars(owner)


def _space(name: str, owner: Any, modules: set[int]) -> _Space:
    """The names of a module, a class or a dictionary. Finds only what a server has not found before."""
    names, known = _names(owner), _prepared.get(name)
    if known is not None and len(known) == len(names):
        same = known.owner is owner and known.as_it_was()
        return known if same else _Space(name, owner, known.places)
    places = {
        key: place
        for place, (key, value) in enumerate(names.items())
        if callable(value) or id(value) in modules
    }
    return _Space(name, owner, places)


class Guard(Fingerprint):
    """The audit hook and the fingerprint for one candidate, whose code is in `file`."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self._recoded: list[Any] = []
        sys.addaudithook(_hook(file, self.events, self._recoded))

    def recoded(self) -> list[Any]:
        return self._recoded


def _hook(file: str, events: list[dict[str, Any]], recoded: list[Any]) -> Any:
    """The hook. `recoded` gets the functions whose code anybody replaces."""
    get_frame, names, attributes = sys._getframe, dict(_EVENTS), frozenset(_FRAME_ATTRIBUTES)
    busy = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
        if event == "object.__setattr__" and args[1] == "__code__":
            recoded.append(args[0])
        if busy:
            return
        code, deep = names.get(event), False
        if code is None:
            if event == "open" and _of_a_process(args[0]):
                code = "D7.reads_processes"
            elif event == "open" and _writes(args[1], args[2]):
                code, deep = "B5.writes_files", True
            elif event == "object.__getattr__" and args[1] in attributes:
                code = "A12.looks_at_frames"
            else:
                return
        if len(events) >= _KEPT:
            return
        busy = True
        try:
            frame: types.FrameType | None = get_frame(1)
            # A module of the standard library may look into a function for its caller.
            hops = _HOPS if event == "object.__getattr__" else 0
            while frame is not None and hops < _HOPS and frame.f_code.co_filename != file:
                between = frame.f_code.co_filename
                if not deep and not between.endswith(_GO_BETWEENS):
                    break
                if between.startswith("<frozen importlib") or "/triton/" in between:
                    break  # importing a module or compiling a kernel
                frame, hops = frame.f_back, hops + 1
            if frame is not None and frame.f_code.co_filename == file:
                events.append({"code": code, "event": event, "line": frame.f_lineno})
        finally:
            busy = False

    return hook


def _of_a_process(path: Any) -> bool:
    """Whether a path belongs to a process, like its memory or descriptors. /proc/cpuinfo does not."""
    if not isinstance(path, str | bytes):
        return False
    parts = os.fsdecode(path).split("/")
    return parts[1:2] == ["proc"] and (parts[2].isdigit() or parts[2] in ("self", "thread-self"))


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _owners() -> dict[str, Any]:
    """The modules and classes whose names are watched."""
    owners: dict[str, Any] = {
        "torch": torch, "torch.Tensor": torch.Tensor, "torch._C.TensorBase": torch._C.TensorBase,
        "torch.nn": torch.nn, "torch.nn.Module": torch.nn.Module, "torch.nn.functional": torch.nn.functional,
        "torch.cuda": torch.cuda, "torch.testing": torch.testing, "torch.random": torch.random,
        "torch.autograd": torch.autograd, "torch.overrides": torch.overrides,
        "triton": triton, "triton.language": tl, "triton.language.core": tl.core, "triton.runtime.jit": jit,
        "JITFunction": jit.JITFunction, "interpreter": interpreter,
        "GridExecutor": interpreter.GridExecutor, "InterpreterBuilder": interpreter.InterpreterBuilder,
        "InterpretedFunction": interpreter.InterpretedFunction, "Autotuner": autotuner.Autotuner,
        "numpy": np, "builtins": builtins, "time": time, "os": os, "json": json, "struct": struct,
        "socket": socket, "socket.socket": socket.socket, "gc": gc, "math": math, "random": random,
        "operator": operator, "threading": threading,
    }  # fmt: skip
    return owners | _our_modules()


_seen_modules: list[Any] = [0, {}]
"""How many modules were looked at, and which of them are ours: looking at thousands of names takes a child
milliseconds.
"""


def _our_modules() -> dict[str, Any]:
    count, ours = _seen_modules
    later = itertools.islice(sys.modules.items(), count, None)
    ours |= {name: module for name, module in later if name.startswith(_OURS) and module}
    _seen_modules[0] = len(sys.modules)
    return dict(ours)


def _settings() -> dict[str, Any]:
    return {
        "default_dtype": torch.get_default_dtype(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "num_threads": torch.get_num_threads(),
        "grad_enabled": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn.enabled": torch.backends.cudnn.enabled,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
    }
