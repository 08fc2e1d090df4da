"""Render a model's chat template as `transformers` does, without loading `transformers`.

Templates come from the Hub and are untrusted programs: they run in Jinja's sandbox and see plain JSON values
only. Does not tokenise; see `chat_tokens`.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernelmill.errors import ConfigError


class TemplateFailed(Exception):
    """The template rejects a chat or fails on it. The text says why, in one line."""


class _Generation(jinja2.ext.Extension):
    """The block `{% generation %}…{% endgeneration %}`, which marks the model's text for trainers.

    Renders its body.
    """

    tags = {"generation"}  # noqa: RUF012  a set, as the base class has it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The `tojson` filter without Jinja's HTML escaping, which no model was trained on."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _tojson
    now: Callable[[str], str] = lambda form: datetime.datetime.now().strftime(form)  # noqa: E731
    made.globals |= {"raise_exception": _raise, "strftime_now": now}
    return made


class ChatTemplate:
    """A compiled chat template. `variables` are the tokenizer's own, such as `bos_token` and `eos_token`."""

    def __init__(self, text: str, variables: Mapping[str, Any], name: str) -> None:
        self._variables = dict(variables)
        try:
            self._template = _environment().from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(
                f"{name}: the chat template is not valid, line {error.lineno}: {error.message}"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a chat as one text.

        `variables` are the row's own, such as `enable_thinking`. Raises `TemplateFailed`.
        """
        given = {**self._variables, **(variables or {})}
        given |= {"messages": messages, "tools": tools, "documents": None}
        given["add_generation_prompt"] = generation_prompt
        try:
            return self._template.render(given)
        except Exception as error:  # a template is untrusted code: any error concerns this chat
            text = " ".join(str(error).split())
            raise TemplateFailed(text or type(error).__name__) from error
