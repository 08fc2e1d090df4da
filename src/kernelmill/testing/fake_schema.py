"""What an endpoint does with a JSON schema in `response_format`: take only strict ones, and enforce them.

Covers the part of JSON schema that strict mode has for plain data: objects, lists, texts, integers, choices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def format_fault(body: dict[str, Any], reply: Callable[[dict[str, Any]], str]) -> str | None:
    """Why the `response_format` of a request cannot be honoured; None where it can, or there is none."""
    if (response_format := body.get("response_format")) is None:
        return None
    if fault := _refused(response_format):
        return fault
    if not _follows(reply(body), response_format["json_schema"]["schema"]):
        return "the reply that the test gave is not JSON that the schema allows"
    return None


def _refused(response_format: dict[str, Any]) -> str | None:
    """Why OpenAI would refuse this `response_format`; None where it would not."""
    wanted = response_format.get("json_schema", {})
    if response_format.get("type") != "json_schema" or wanted.get("strict") is not True:
        return "response_format: expected a strict json_schema"
    if not wanted.get("name", "").isidentifier() or wanted["schema"].get("type") != "object":
        return "response_format: expected a name and a schema of an object"
    return _loose(wanted["schema"])


def _loose(schema: dict[str, Any]) -> str | None:
    """What strict mode does not allow in a schema."""
    if schema["type"] == "array":
        return _loose(schema["items"])
    if schema["type"] != "object":
        return None
    if schema.get("additionalProperties") is not False:
        return "Invalid schema: 'additionalProperties' is required to be supplied and to be false"
    if schema.get("required") != list(schema["properties"]):
        return "Invalid schema: 'required' is required to include every key in properties"
    return next(filter(None, map(_loose, schema["properties"].values())), None)


def _follows(text: str, schema: dict[str, Any]) -> bool:
    """Whether an answer is JSON that the schema allows."""
    try:
        return _allowed(json.loads(text), schema)
    except ValueError:
        return False


def _allowed(value: Any, schema: dict[str, Any]) -> bool:
    match schema["type"]:
        case "object":
            inner = schema["properties"]
            return (
                isinstance(value, dict)
                and value.keys() == inner.keys()
                and all(_allowed(value[name], inner[name]) for name in inner)
            )
        case "array":
            return isinstance(value, list) and all(_allowed(item, schema["items"]) for item in value)
        case "string":
            return isinstance(value, str) and value in schema.get("enum", [value])
        case _:
            return type(value) is int
