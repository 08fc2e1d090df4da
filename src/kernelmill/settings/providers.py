"""Providers: model endpoints whose key is found by their host name.

An OpenAI-compatible endpoint needs no entry: `--base-url`, `--model` and `--api-key-var` name it. Standard
library alone: `environment` takes the names of secrets from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kernelmill.settings.registry import Registry


class Provider(NamedTuple):
    what: str
    """For `kernelmill doctor`: what the key is for."""
    key_variable: str
    """The environment variable that holds the key. A key is sent to its provider's host only."""
    headers: Mapping[str, str] = MappingProxyType({})
    """Further headers, each with the variable that holds its value; left out where it is not set."""


PROVIDERS = Registry(
    "provider",
    "kernelmill.providers",
    Provider,
    {
        "api.pinference.ai": Provider(
            "Prime Intellect, the default endpoint", "PRIME_API_KEY", {"X-Prime-Team-ID": "PRIME_TEAM_ID"}
        ),
        "api.openai.com": Provider("api.openai.com", "OPENAI_API_KEY"),
    },
)
"""By host name."""
