"""What a candidate did that no kernel needs, seen from inside its own process.

Two watchers, both started before its code runs:

- an audit hook, which Python offers no way to remove: it notes frames looked at, objects listed, native libraries
  loaded, code objects replaced, processes and sockets tried, threads started;
- a fingerprint of the functions of torch, triton, numpy, Python and this evaluator, compared after every step.

This is evidence, and strong, but not proof of innocence: the proof is in the outputs, which are compared elsewhere.
"""

from __future__ import annotations

import builtins
import gc
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
# Whoever calls these may be called by a candidate: it is the one that asked.
_GO_BETWEENS = ("/inspect.py", "/traceback.py", "/threading.py", "/subprocess.py", "/ctypes/__init__.py",
                "/concurrent/futures/thread.py", "/socket.py", "/mmap.py")  # fmt: skip
_KEPT = 20
_HOPS = 12


class Guard:
    """Watches one candidate, whose code is in `file`."""

    def __init__(self, file: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._threads = threading.active_count()
        self._flags = _settings()
        sys.addaudithook(_hook(file, self.events))
        self._before = {name: dict(space) for name, space in _spaces().items()}
        self._codes = {id(f): f.__code__ for space in self._before.values() for f in _functions(space)}

    def tampered(self) -> list[str]:
        """Names of what is no longer what it was. What was added is no harm."""
        changed = []
        for name, space in _spaces().items():
            for key, value in self._before[name].items():
                now = space.get(key)
                if now is not value and callable(value):  # a module's data changes by itself
                    changed.append(f"{name}.{key}")
                elif type(now) is types.FunctionType and now.__code__ is not self._codes[id(now)]:
                    changed.append(f"{name}.{key}.__code__")
        return changed[:_KEPT]

    def settings(self) -> list[str]:
        """Names of torch's global settings that have changed."""
        return [name for name, value in _settings().items() if self._flags[name] != value]

    def threads(self) -> int:
        """How many threads there are that were not there before."""
        return threading.active_count() - self._threads


def _hook(file: str, events: list[dict[str, Any]]) -> Any:
    get_frame, names, attributes = sys._getframe, dict(_EVENTS), frozenset(_FRAME_ATTRIBUTES)
    busy = False

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal busy
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
            hops = 0
            while frame is not None and hops < _HOPS and frame.f_code.co_filename != file:
                between = frame.f_code.co_filename
                if not deep and not between.endswith(_GO_BETWEENS):
                    break
                if between.startswith("<frozen importlib") or "/triton/" in between:
                    break  # a module being imported, a kernel being compiled
                frame, hops = frame.f_back, hops + 1
            if frame is not None and frame.f_code.co_filename == file:
                events.append({"code": code, "event": event, "line": frame.f_lineno})
        finally:
            busy = False

    return hook


def _of_a_process(path: Any) -> bool:
    """Memory, descriptors and the like; /proc/cpuinfo and its kin are for everybody."""
    if not isinstance(path, str | bytes):
        return False
    parts = os.fsdecode(path).split("/")
    return parts[1:2] == ["proc"] and (parts[2].isdigit() or parts[2] in ("self", "thread-self"))


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _functions(space: dict[str, Any]) -> list[types.FunctionType]:
    return [value for value in space.values() if type(value) is types.FunctionType]


def _spaces() -> dict[str, dict[str, Any]]:
    """The names that are watched, by owner."""
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
    for name, module in list(sys.modules.items()):
        if name.startswith("kernelmill.evaluate") and module is not None:
            owners[name] = module
            for key, value in list(vars(module).items()):
                if isinstance(value, type) and value.__module__ == name:
                    owners[f"{name}.{key}"] = value
    return {name: vars(owner) for name, owner in owners.items()}


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
