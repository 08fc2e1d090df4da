"""Structured answers: JSON objects of one type, which the endpoint enforces by a schema.

The request carries OpenAI's `response_format` with a strict `json_schema`, which vLLM and SGLang take in the
same form. A model does not see the schema everywhere, so a prompt describes the fields as well. An endpoint
may ignore the field: every answer is validated here.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

import msgspec

from kernelmill.llm.engine import BadAnswer
from kernelmill.llm.prompts import Prompt

T = TypeVar("T", bound=msgspec.Struct)


class Structured(Generic[T]):
    """Answers of type `T`: what to send for them, and how to read them. `name` is that of the stage."""

    def __init__(self, name: str, answer_type: type[T]) -> None:
        self.prompt = Prompt(f"{name}_json")
        schema = {"name": name, "strict": True, "schema": _schema(answer_type)}
        self.response_format: dict[str, Any] = {"type": "json_schema", "json_schema": schema}
        self._decoder = msgspec.json.Decoder(answer_type)

    def ask(self, question: str) -> str:
        return f"{question}\n\n{self.prompt.render()}"

    def read(self, text: str) -> T:
        """Validate an answer. Raises `BadAnswer`."""
        try:
            return self._decoder.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise BadAnswer(f"the answer is not the JSON object that was asked for: {error}") from None


def _schema(annotation: Any) -> dict[str, Any]:
    """The JSON schema of a type as strict mode wants it: all fields are required, and no others allowed.

    Not `msgspec.json.schema`: the schema is part of the key of every paid answer, so it must be the same
    under every version of msgspec.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return {"type": "array", "items": _schema(arguments[0])}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if annotation in (str, int):
        return {"type": {str: "string", int: "integer"}[annotation]}
    properties = {field.name: _schema(field.type) for field in msgspec.structs.fields(annotation)}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
