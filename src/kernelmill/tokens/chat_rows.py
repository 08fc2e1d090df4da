"""Read a row as a chat: messages, tools, template variables, and thoughts in the fields that templates read.

    prompt + completion     evals rows and everything made from them, prime-rl
    messages                slime, TRL
    prompt                  prompt sets; a plain text is one user message

Thoughts are in `reasoning`, `reasoning_content` or `thinking`, or in <think> inside the content. Templates
read `reasoning_content` (a few read `thinking`), so thoughts from a field are written to both. Thoughts
inside the content stay there: the template removes them or keeps them. Does not render; see `chat_tokens`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from kernelmill.base.answers import NoAnswer, read_answer, split_thoughts
from kernelmill.base.rows import Row, RowReader
from kernelmill.errors import BadRow

Reasoning = Literal["count", "drop"]

_FIELDS = ("reasoning_content", "thinking", "reasoning")
_CLOSING = {"answer": "</answer>", "begin_python": "END_PYTHON", "fence": "```"}
_TAIL = 200
"""Number of characters by which the end of a message is located in the rendered text."""


class Chat(NamedTuple):
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    variables: dict[str, Any]
    """The row's own template variables: `chat_template_kwargs`."""
    answered: bool
    """Whether the last message is the assistant's. Otherwise the chat is a prompt without an answer."""
    thoughts: str
    """The thoughts of the last assistant message; empty where there are none or they are dropped."""
    ending: str
    """The end of the assistant's answer: its code and closing mark. Empty without an assistant message."""
    clear: bool
    """Whether `ending` is an answer block. Without a clear block it is the end of the message."""


class _ChatRow(Struct):
    prompt: Any = None
    completion: Any = None
    messages: Any = None
    tools: Any = None
    oai_tools: Any = None
    chat_template_kwargs: Any = None


class ChatReader:
    """Reads the chat of a row. Raises `BadRow` where the row is not a chat."""

    def __init__(self, reasoning: Reasoning) -> None:
        self._read = RowReader(_ChatRow)
        self._drop = reasoning == "drop"

    def __call__(self, row: Row) -> Chat:
        columns = self._read(row)
        messages = [self._thoughts_in_place(row.where, message) for message in _messages(row.where, columns)]
        tools = columns.tools if columns.tools is not None else columns.oai_tools
        tools = _parsed(row.where, "tools" if columns.tools is not None else "oai_tools", tools, list)
        variables = _parsed(row.where, "chat_template_kwargs", columns.chat_template_kwargs, dict)
        last: dict[str, Any] = next(
            (message for message in reversed(messages) if message["role"] == "assistant"), {}
        )
        content = last.get("content")
        content = content if isinstance(content, str) else ""
        block = _answer_block(content)
        return Chat(
            messages, tools, variables or {}, messages[-1]["role"] == "assistant",
            "" if self._drop else last.get("reasoning_content") or _thoughts_inside(content),
            block or content.rstrip()[-_TAIL:], block is not None,
        )  # fmt: skip

    def _thoughts_in_place(self, where: str, message: dict[str, Any]) -> dict[str, Any]:
        if message["role"] != "assistant":
            return message
        thoughts = next((message[name] for name in _FIELDS if message.get(name)), None)
        if thoughts is not None and not isinstance(thoughts, str):
            raise BadRow(where, "thoughts of a message must be text")
        if not self._drop:
            return (
                message
                if thoughts is None
                else {**message, "thinking": thoughts, "reasoning_content": thoughts}
            )
        kept = {name: value for name, value in message.items() if name not in _FIELDS}
        if isinstance(content := kept.get("content"), str):
            try:
                inside, rest = split_thoughts(content)
            except NoAnswer as error:
                raise BadRow(where, f"thoughts cannot be left out: {error}") from None
            kept["content"] = rest.lstrip() if inside else content
        return kept


def _messages(where: str, columns: _ChatRow) -> list[dict[str, Any]]:
    if columns.prompt is not None:
        found = _list(where, "prompt", columns.prompt, "user")
        found += _list(where, "completion", columns.completion, "assistant")
    else:
        found = _list(where, "messages", columns.messages, "user")
    if not found:
        raise BadRow(where, "no chat in this row: it needs prompt and completion, or messages")
    return found


def _list(where: str, column: str, value: Any, role: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise BadRow(where, "expected a list of messages, or a text", f"$.{column}")
    for number, message in enumerate(value):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRow(where, "expected a message: an object with a role", f"$.{column}[{number}]")
    return value


def _parsed(where: str, column: str, value: Any, kind: type) -> Any:
    """Decode a value that some producers store as JSON text. An empty text counts as None."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else None
        except msgspec.DecodeError as error:
            raise BadRow(where, f"not JSON ({error})", f"$.{column}") from None
    if value is not None and not isinstance(value, kind):
        raise BadRow(where, f"expected a {kind.__name__}", f"$.{column}")
    return value


def _thoughts_inside(content: str) -> str:
    if "think" not in content:
        return ""
    try:
        return split_thoughts(content)[0]
    except NoAnswer:
        return ""


def _answer_block(content: str) -> str | None:
    """The message's text from the answer's code to its closing mark; None where there is no clear answer."""
    try:
        answer = read_answer(content)
    except NoAnswer:
        return None
    closing = _CLOSING[answer.style]
    end = len(content)
    while (end := content.rfind(closing, 0, end)) >= 0:
        start = content.rfind(answer.code, 0, end)
        # Only whitespace may separate the code from its mark, or the closing fence inside the tags.
        if start >= 0 and content[start + len(answer.code) : end].strip() in ("", "```"):
            return content[start : end + len(closing)]
    return None
