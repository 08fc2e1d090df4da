"""One client for the whole process, for functions that a trainer calls with no place to keep one.

    KERNEL_REWARD_URL          the service (http://127.0.0.1:18188)
    KERNEL_REWARD_TOKEN        its token, where it wants one
    KERNEL_REWARD_NAME         which reward; the one that the service was started with
    KERNEL_REWARD_ON_FAULT     raise (the default) or mask: what to do where no reward could be had

Variables that begin with KERNELMILL_ are settings of the stages, which refuse what they do not know.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from typing import Any

from kernelmill.config import environment, secret
from kernelmill.errors import ConfigError
from kernelmill.rl.client import URL, Ask, ClientOptions, Reward, RewardClient

_clients: dict[tuple[int, ClientOptions], RewardClient] = {}
_lock = threading.Lock()


def options(**given: Any) -> ClientOptions:
    """What was given, and for the rest the environment. None is not given."""
    variables = environment()
    on_fault = variables.get("KERNEL_REWARD_ON_FAULT", "raise")
    if on_fault not in ("raise", "mask"):
        raise ConfigError(f"KERNEL_REWARD_ON_FAULT={on_fault}: expected raise or mask")
    found: dict[str, Any] = {
        "url": variables.get("KERNEL_REWARD_URL") or URL,
        "token": secret("KERNEL_REWARD_TOKEN"),
        "reward": variables.get("KERNEL_REWARD_NAME") or None,
        "mask": on_fault == "mask",
    }
    return ClientOptions(**found | {key: value for key, value in given.items() if value is not None})


def client(**given: Any) -> RewardClient:
    """The process's client with these options. One that was made before a fork is not used after it."""
    key = os.getpid(), options(**given)
    with _lock:
        if key not in _clients:
            _clients[key] = RewardClient(key[1])
        return _clients[key]


def _forked() -> None:
    """In the new process: a thread that held the lock is not there to give it back."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


async def grade(ask: Ask, **given: Any) -> Reward:
    """For any event loop."""
    return await asyncio.wrap_future(client(**given).submit(ask))


@atexit.register
def close() -> None:
    """End the clients of this process."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        for key in mine:
            _clients.pop(key).close()
