"""One client for the whole process, for trainer functions that have no place to keep one.

    KERNEL_REWARD_URL          the service (http://127.0.0.1:18188)
    KERNEL_REWARD_TOKEN        its token, if it requires one
    KERNEL_REWARD_NAME         the reward's name; default: the one that the service was started with
    KERNEL_REWARD_ON_FAULT     raise (the default) or mask: what to do if no reward could be obtained

The prefix is not KERNELMILL_, because such variables are settings of the stages, which reject unknown ones.
"""

from __future__ import annotations

import asyncio
import atexit
import dataclasses
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

from kernelmill.errors import ConfigError
from kernelmill.rl.client import URL, Ask, ClientOptions, Reward, RewardClient
from kernelmill.settings.environment import environment, secret

_clients: dict[tuple[int, ClientOptions], RewardClient] = {}
_lock = threading.Lock()
_log = logging.getLogger(__name__)
_OF_TRAINERS = ("reward_router_address", "reward_model_tokenizer")
"""Arguments that verl adds to a reward function's own if it also serves a reward model."""
_left_alone: set[str] = set()


def options(**given: Any) -> ClientOptions:
    """Build the options from the arguments, then the environment. None counts as not given."""
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


def ours(given: Mapping[str, Any]) -> dict[str, Any]:
    """Select the client's options from a trainer's keyword arguments, which include the trainer's own.

    Others (verl: `reward_router_address`) are ignored. Each unknown one is logged once: it may be a misspelt
    option.
    """
    known = {field.name for field in dataclasses.fields(ClientOptions)}
    for name in given.keys() - known - _left_alone:
        _left_alone.add(name)
        if name not in _OF_TRAINERS:
            _log.warning(
                "%s is no option of the reward client (%s): left alone", name, ", ".join(sorted(known))
            )
    return {name: value for name, value in given.items() if name in known}


def client(**given: Any) -> RewardClient:
    """Return this process's client with these options. A client from before a fork is not reused."""
    key = os.getpid(), options(**given)
    with _lock:
        if key not in _clients:
            _clients[key] = RewardClient(key[1])
        return _clients[key]


def _forked() -> None:
    """Replace the lock in a forked process: the thread that held it no longer exists to release it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


async def grade(ask: Ask, **given: Any) -> Reward:
    """Grade from any event loop."""
    return await asyncio.wrap_future(client(**given).submit(ask))


@atexit.register
def close() -> None:
    """Close the clients of this process."""
    with _lock:
        mine = [key for key in _clients if key[0] == os.getpid()]
        for key in mine:
            _clients.pop(key).close()
