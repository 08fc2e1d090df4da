"""What servers say, read: refusals and thoughts in the words of different ones."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kernelmill.errors import ConfigError
from kernelmill.llm.client import Endpoint, RequestRefused, read_reply
from kernelmill.settings import environment
from kernelmill.settings.base import LLMSettings


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


class Proxy:
    """Notes what it is asked, as a proxy is asked it, and answers by itself."""

    def __enter__(self) -> Proxy:
        asked: list[tuple[str, dict[str, str]]] = []
        self.asked = asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append((self.path, dict(self.headers.items())))
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


async def _call(base_url: str) -> str:
    async with Endpoint(LLMSettings(base_url=base_url, model="m", api_key_var="SOME_KEY")) as endpoint:
        return await endpoint.call(b"{}")


def test_the_proxy_of_the_environment_is_used_with_its_password_and_netrc_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine model.test login somebody password other-secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("SOME_KEY", "the-key")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    environment.environment.cache_clear()
    with Proxy() as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss@{proxy.address}")
        assert asyncio.run(_call("http://model.test/v1")) == "{}"
        ((path, headers),) = proxy.asked
        assert path == "http://model.test/v1/chat/completions"
        assert headers["Authorization"] == "Bearer the-key"
        assert headers["Proxy-Authorization"] == f"Basic {b64encode(b'me:p@ss').decode()}"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert asyncio.run(_call(f"http://{proxy.address}/v1")) == "{}"
        assert proxy.asked[1][0] == "/v1/chat/completions"
    monkeypatch.setenv("http_proxy", "socks5://me:secret@127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"NO_PROXY=model\.test") as refused:
        asyncio.run(_call("http://model.test/v1"))
    assert "secret" not in str(refused.value)


def test_no_package_is_needed_that_others_pin() -> None:
    """Neither `openai` nor what it is made of: servers and trainers want releases of their own."""
    script = (
        "import asyncio, sys\n"
        "for name in ('openai', 'httpx', 'httpx2', 'huggingface_hub'): sys.modules[name] = None\n"
        "from kernelmill.llm.client import Endpoint\n"
        "from kernelmill.settings.base import LLMSettings\n"
        "async def call():\n"
        "    async with Endpoint(LLMSettings(base_url=sys.argv[1], model='m')) as endpoint:\n"
        "        return await endpoint.call(b'{}')\n"
        "print(asyncio.run(call()))\n"
    )
    with Proxy() as server:
        line = [sys.executable, "-W", "error", "-c", script, f"http://{server.address}/v1"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("{}\n", "")
