"""What servers say, read: refusals and thoughts in the words of different ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from kernelmill.llm.client import Endpoint, RequestRefused, read_reply
from kernelmill.settings import LLMSettings


@pytest.mark.parametrize(
    "reason",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "the request exceeds the available context size (4096 tokens), try increasing it",
        "prompt is too long: 200001 tokens > 200000 maximum",
        "The input token count (5000) exceeds the maximum number of tokens allowed (4096).",
        "`inputs` must have less than 1024 tokens. Given: 2000",
    ],
)
def test_a_request_that_is_too_long_is_known_by_the_words_of_many_servers(reason: str) -> None:
    error = RequestRefused(f"400: {reason}", 400)
    assert error.too_long
    assert error.about_size


def test_where_our_own_limit_is_named_the_others_may_be_refused_too() -> None:
    error = RequestRefused("400: 'max_tokens' is too large: 9. The maximum context length is 9 tokens", 400)
    assert (error.too_long, error.about_size) == (True, False)
    assert RequestRefused("413: anything", 413).about_size
    assert not RequestRefused("400: Unsupported parameter: 'temprature'", 400).too_long


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "no such thing", "code": "x"}}, "no such thing"),
        ({"message": "no such thing"}, "no such thing"),
        ({"error": "no such thing"}, "no such thing"),
        ({"detail": "no such thing"}, "no such thing"),
        ({"detail": [{"loc": ["body", "seed"], "msg": "not a number"}]}, '"msg": "not a number"'),
        ({"odd": 1}, '{"odd": 1}'),
        ("plain words", "plain words"),
        ("", "400"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words_whatever_their_form(body: Any, expected: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=400, text=body if isinstance(body, str) else json.dumps(body))

    async def run() -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", refuse)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            async with Endpoint(LLMSettings(base_url=f"http://127.0.0.1:{port}/v1", model="m")) as endpoint:
                with pytest.raises(RequestRefused) as refused:
                    await endpoint.call(b"{}")
        finally:
            await runner.cleanup()
        return str(refused.value)

    assert expected in asyncio.run(run())


@pytest.mark.parametrize(
    ("message", "thoughts"),
    [
        ({"reasoning": " one "}, "one"),
        ({"reasoning_content": "one"}, "one"),
        ({"reasoning": "one", "reasoning_content": "one\n"}, "one"),
        ({"reasoning": "one", "reasoning_content": "two"}, "one\n\ntwo"),
        ({"reasoning": None, "reasoning_content": " "}, ""),
        ({"reasoning": {"text": "one"}}, ""),
        ({}, ""),
    ],
)
def test_thoughts_in_fields_of_their_own_are_one_text(message: dict[str, Any], thoughts: str) -> None:
    reply = read_reply(json.dumps({"choices": [{"message": {"content": "text"} | message}]}))
    assert (reply.text, reply.reasoning) == ("text", thoughts)
