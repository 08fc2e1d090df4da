"""What takes seconds to make and only is read: made once in a run of pytest, by the first process that needs it."""

from __future__ import annotations

import fcntl
import functools
import os
from collections.abc import Callable
from pathlib import Path

from kernelmill.testing.qwen_tokenizer import write_tokenizer
from tests.server_templates import FOLDER


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` writes. Whoever comes while it is being made waits for it."""
    folder = Path(os.environ[FOLDER]) / name
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(f".{os.getpid()}")
            make(unfinished)
            unfinished.rename(folder)
    return folder


@functools.cache
def qwen_folder() -> Path:
    """The embedded Qwen vocabulary as a tokenizer folder of the Hub."""
    return made_once("qwen", write_tokenizer)


@functools.cache
def small_qwen_folder() -> Path:
    """The same with the first tokens only, for what does not depend on the vocabulary."""
    return made_once("small_qwen", lambda folder: write_tokenizer(folder, tokens=4000))
