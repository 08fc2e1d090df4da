"""The environment: variables of `.env` and of the process, and the secrets among them.

`secret()` reads a secret when it is needed, and `redact()` removes the values of all secrets from a text
that is shown or saved. Needs only the standard library, as the reward functions of `kernelmill.rl` do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from kernelmill.errors import ConfigError
from kernelmill.settings.providers import PROVIDERS

SECRETS = (
    *(provider.key_variable for provider in PROVIDERS.values()),
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "KERNELMILL_API_KEY",
)


@lru_cache(1)
def environment() -> Mapping[str, str]:
    """The variables of `.env` in the current folder, overridden by those of the process."""
    try:
        values = {key: value for key, value in _dotenv().items() if value is not None}
    except (ValueError, OSError) as error:
        raise ConfigError(f".env: cannot be read ({error})") from None
    return {**values, **os.environ}


def _dotenv() -> Mapping[str, str | None]:
    try:
        from dotenv import dotenv_values
    except ImportError:
        file = Path(".env")
        # A trainer's own `.env` is ignored; one that sets our variables must not be ignored silently.
        if file.is_file() and re.search(r"^\s*(export\s+)?KERNEL", file.read_text(), re.MULTILINE):
            raise ConfigError(
                ".env sets KERNEL… variables, and python-dotenv, which reads it, is not installed: "
                "pip install python-dotenv, or set them in the environment"
            ) from None
        return {}
    return dotenv_values(".env")


_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|CREDS)$")
_PLAIN_VALUE = re.compile(r"(?i)true|false|yes|no|on|off|none|null|[\d.]*")
"""A switch or a number is not a secret: `HF_HUB_DISABLE_IMPLICIT_TOKEN=false`."""
_used_secrets: dict[str, str] = {}


def names_secret(variable: str) -> bool:
    return variable in SECRETS or _SECRET_NAME.search(variable) is not None


def secret(name: str) -> str | None:
    """The value of a secret, or None where it is not set. `redact` removes it from then on, whatever its name."""
    value = environment().get(name, "").strip()
    if value:
        _used_secrets[name] = value
    return value or None


def redact(text: str) -> str:
    """Remove the values of all known secrets from the text, and passwords inside URLs."""
    try:
        variables = environment()
    except ConfigError:
        variables = os.environ  # `.env` cannot be read, which is what the text is about
    found = {
        name: value.strip()
        for name, value in variables.items()
        if name in SECRETS or (_SECRET_NAME.search(name) and not _PLAIN_VALUE.fullmatch(value.strip()))
    }
    # Both: a variable may have changed since it was used, and both values are secrets.
    for name, value in (*found.items(), *_used_secrets.items()):
        if len(value) >= 4:
            text = text.replace(value, f"[{name}]")
    return re.sub(r"(https?://)[^\s/?#]*@", r"\1[hidden]@", text)
