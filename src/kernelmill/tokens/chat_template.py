"""A model's chat template, rendered as `transformers` does it, without loading that.

Templates come from the Hub and are programs of strangers: they run in Jinja's sandbox, and see plain JSON values only. Does not
tokenise; see `chat_tokens`.
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
    """The template refuses a chat, or fails on it; the text says why, in one line."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}…{% endgeneration %}` marks what the model writes, for trainers. Here it is what stands inside."""

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
    """Jinja's own filter escapes HTML, which no model was trained on."""
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
    """`variables` are what the tokenizer gives its template: `bos_token`, `eos_token` and the like."""

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
        """The chat as one text. `variables` are the row's own, such as `enable_thinking`. Raises `TemplateFailed`."""
        given = {**self._variables, **(variables or {})}
        given |= {"messages": messages, "tools": tools, "documents": None}
        given["add_generation_prompt"] = generation_prompt
        try:
            return self._template.render(given)
        except (
            Exception
        ) as error:  # a template is a stranger's program: whatever it raises is about this chat
            text = " ".join(str(error).split())
            raise TemplateFailed(text or type(error).__name__) from error
