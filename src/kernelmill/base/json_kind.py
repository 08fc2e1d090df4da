"""Names of JSON types, for messages."""

from __future__ import annotations

from typing import Any

_NAMES = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


def json_kind(value: Any) -> str:
    """Return the type of a decoded JSON value in words: `an object`, `a number`."""
    return _NAMES.get(type(value), "a number")
