"""One call to an OpenAI-compatible endpoint, and the classification of its failures.

This module builds and hashes the request, sends those bytes over aiohttp, and returns the response as the
server sent it. The `openai` package would add nothing to that, and other people's servers and trainers pin
its version.

Does not retry: that is the engine's job. A failure is one of three kinds:

    TransientError    a retry may help
    RequestRefused    the server rejects this request only
    EndpointError     no retry will help
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hashlib
import json
import re
import time
import urllib.request
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from kernelmill import __version__
from kernelmill.errors import ConfigError, EndpointError
from kernelmill.settings.base import LLMSettings, Price
from kernelmill.settings.environment import redact, secret
from kernelmill.settings.providers import PROVIDERS

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|(prompt|input)s? (\(.{0,40}\) )?is (too (long|large)|longer than)|maximum.{0,40}(tokens|model length)|must have less than \d+ tokens",
    re.I,
)
"""Error texts of OpenAI, vLLM, SGLang, llama.cpp and others for a request that is too long."""


class Request(NamedTuple):
    """A question. `key` hashes all of it: endpoint, model, messages, sampling, sample number."""

    key: str
    body: bytes


class TransientError(Exception):
    """A failure that a retry may fix.

    `pushed_back`: the server wants fewer calls. `exhausted`: the server accepts no calls at all for now.
    """

    def __init__(
        self,
        reason: str,
        pushed_back: bool = False,
        retry_after: float | None = None,
        exhausted: bool = False,
    ) -> None:
        super().__init__(reason)
        self.pushed_back = pushed_back
        self.exhausted = exhausted
        self.retry_after = retry_after


class RequestRefused(Exception):
    """The server rejects this request and would reject every retry; other requests may succeed.

    `too_long`: the request is too long for the model. `about_size`: the rejection says nothing about other
    requests. It is false where the server names the token limit we sent, because that limit may be too large
    for all requests.
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        ours = re.search(r"max_(completion_)?tokens", reason)
        self.too_long = status == 413 or _TOO_LONG.search(reason) is not None
        self.about_size = self.too_long and (status == 413 or ours is None)


class Reply(NamedTuple):
    """A parsed response. Token counts are None where the server did not report them."""

    text: str
    finish: str | None
    refusal: str | None
    reasoning: str
    """Reasoning that the server returned separately from the text."""
    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    tokens_cached: int | None


def read_reply(response: str) -> Reply:
    """Parse a response. Raises `ValueError` where it is not a chat completion.

    Tolerant, so that a field nobody needs cannot lose a paid answer: only the first choice is read, invalid
    token counts become None, and NaN or a lone surrogate anywhere in the body is accepted.
    """
    body = _decode(response)
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise ValueError("the server's answer is not a chat completion")
    content, refusal, finish = message.get("content"), message.get("refusal"), choice.get("finish_reason")
    if isinstance(content, list):
        content = "".join(
            part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)
        )
    usage = body.get("usage")
    # Some servers send both fields with the same text.
    thoughts = dict.fromkeys(
        thought.strip()
        for name in ("reasoning", "reasoning_content")
        if isinstance(thought := message.get(name), str)
    )
    return Reply(
        text=_utf8(content) if isinstance(content, str) else "",
        finish=finish if isinstance(finish, str) else None,
        refusal=_utf8(refusal) if isinstance(refusal, str) and refusal else None,
        reasoning=_utf8("\n\n".join(filter(None, thoughts))),
        tokens_in=_count(usage, "prompt_tokens"),
        tokens_out=_count(usage, "completion_tokens"),
        tokens_reasoning=_count(usage, "completion_tokens_details", "reasoning_tokens"),
        tokens_cached=_count(usage, "prompt_tokens_details", "cached_tokens"),
    )


def _decode(response: str) -> Any:
    try:
        return msgspec.json.decode(response)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        try:
            return json.loads(response, strict=False)
        except RecursionError:
            raise ValueError("the server's answer is nested too deeply") from None


def _count(usage: Any, *path: str) -> int | None:
    """A token count, or None where it is missing or invalid."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(usage, str) and usage.isascii() and usage.isdigit() and len(usage) < 19:
        usage = int(usage)
    if isinstance(usage, float) and usage.is_integer():
        usage = int(usage)
    return usage if isinstance(usage, int) and not isinstance(usage, bool) and 0 <= usage < 2**62 else None


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def incomplete_reason(reply: Reply) -> str:
    """Why this is not a complete answer; empty where it is one."""
    if reply.refusal:
        return "the model refused to answer"
    if reply.finish != "stop":
        return f"the answer ended with finish_reason {reply.finish or 'missing'}, not stop"
    return "" if reply.text.strip() else "the answer is empty"


def cost_of(reply: Reply, price: Price | None) -> float | None:
    """The cost in US dollars, or None where the price or the token counts are unknown."""
    if price is None or reply.tokens_in is None or reply.tokens_out is None:
        return None
    cached = min(reply.tokens_cached or 0, reply.tokens_in) if price.cached_input is not None else 0
    dollars = (reply.tokens_in - cached) * price.input + reply.tokens_out * price.output
    return (dollars + cached * (price.cached_input or 0.0)) / 1e6


class Endpoint:
    """An endpoint and a model from the settings. Builds requests; sends them inside `async with`."""

    def __init__(self, settings: LLMSettings) -> None:
        host = _host(settings.base_url)
        self.settings = settings
        self.model = settings.model
        self.name = redact(settings.base_url)
        self.price = Price.parse(settings.price) if settings.price else settings.prices.get(settings.model)
        if settings.max_cost is not None and self.price is None:
            raise ConfigError(
                f"--max-cost needs the price of {settings.model}: give --price INPUT,OUTPUT "
                f'(US dollars for a million tokens), or [prices."{settings.model}"] in the config'
            )
        provider = PROVIDERS.find(host) if host in PROVIDERS.names() else None
        self.key_variable = settings.api_key_var or (provider.key_variable if provider else None)
        self._providers = [*PROVIDERS.values(), *([provider] if provider else [])]
        self._sampling = settings.sampling.model_dump(exclude_none=True, exclude={"extra_body"})
        self._sampling |= settings.sampling.extra_body

    def check_key(self) -> None:
        """Fail before any work is done where a required key is missing or malformed."""
        key = secret(self.key_variable) if self.key_variable else None
        if key is not None and (not key.isascii() or any(letter.isspace() for letter in key)):
            raise ConfigError(
                f"{self.key_variable} does not hold a key: it has blanks or letters that no key has"
            )
        if self.key_variable and not key:
            raise ConfigError(
                f"no key for {self.name}: set {self.key_variable} in the environment or in .env "
                f"(or name another endpoint with --base-url, or use program analysis instead of a model)"
            )

    def request(self, messages: list[dict[str, str]], sample: int = 0, **fields: Any) -> Request:
        """Build a request. `sample` tells samples of one question apart; `fields` are added to the body."""
        body = msgspec.json.encode({"model": self.model, "messages": messages, **self._sampling, **fields})
        asked = hashlib.sha256(f"{self.name}\n{sample}\n".encode())
        asked.update(body)
        return Request(asked.hexdigest(), body)

    async def __aenter__(self) -> Endpoint:
        import aiohttp

        key = secret(self.key_variable) if self.key_variable else None
        headers = {"Content-Type": "application/json", "User-Agent": f"kernelmill/{__version__}"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        for provider in self._providers:
            for header, variable in provider.headers.items():
                # Reading it makes it known to `redact`, whoever is asked.
                if (value := secret(variable)) and provider.key_variable == self.key_variable:
                    headers[header] = value
        self._url = f"{self.settings.base_url.rstrip('/')}/chat/completions"
        self._proxy = _proxy(self._url)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self.settings.concurrency, keepalive_timeout=60),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            # `call` enforces the total timeout. Waiting for a pooled connection must not count as connecting.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(30.0, self.settings.timeout)),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, body: bytes) -> str:
        """Send one request and return the response text. Raises one of the three kinds of failure."""
        import aiohttp

        try:
            async with (
                asyncio.timeout(self.settings.timeout),
                self._session.post(self._url, data=body, allow_redirects=False, **self._proxy) as response,
            ):
                text = (await response.read()).decode("utf-8", "replace")
        except aiohttp.ConnectionTimeoutError as error:
            raise TransientError(f"connection failed ({_one_line(error)})") from None
        except TimeoutError:
            raise TransientError(f"no answer within {self.settings.timeout:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
            raise TransientError(f"connection failed ({_one_line(error)})") from None
        except (aiohttp.ClientError, ValueError, LookupError, AssertionError) as error:
            # aiohttp raises these where a server does not speak HTTP. That fails this call, not the run.
            raise TransientError(f"the server's answer cannot be read ({_one_line(error)})") from None
        if response.status >= 300:
            raise self._failure(_Refusal.of(response.status, response.headers, text))
        return text

    def _failure(self, refusal: _Refusal) -> Exception:
        status, said, headers = refusal.status, refusal.said, refusal.headers
        host = self.name
        if "insufficient_quota" in refusal.codes or status == 402:
            return EndpointError(
                f"{host}: out of credit ({said}): add credit, then run the same command to go on"
            )
        if status == 401:
            hint = (
                f"check {self.key_variable}"
                if self.key_variable
                else "it wants a key: name its variable with --api-key-var"
            )
            return EndpointError(f"{host} refused the key (401: {said}): {hint}")
        if status == 403:
            return EndpointError(f"{host} forbids this (403: {said}): check what the key and the team may do")
        if status == 404:
            return EndpointError(
                f"{host} does not know model {self.model!r} or this path (404: {said}): check --model and --base-url"
            )
        if 300 <= status < 400:
            return EndpointError(
                f"{host} sends us elsewhere ({status}, to {_one_line(headers.get('Location'))}): check --base-url"
            )
        if status in (429, 503, 529):
            return TransientError(
                f"{status}: {said}",
                pushed_back=True,
                retry_after=_retry_after(headers),
                exhausted=_exhausted(headers),
            )
        if status >= 500 or status in (408, 409, 425):
            return TransientError(f"{status}: {said}", retry_after=_retry_after(headers))
        return RequestRefused(" ".join([str(status), *refusal.codes[:1]]) + f": {said}", status)


class _Refusal(NamedTuple):
    """An error response: the server's reason on one line, and its error codes."""

    status: int
    headers: Mapping[str, str]
    said: str
    codes: list[str]

    @classmethod
    def of(cls, status: int, headers: Mapping[str, str], text: str) -> _Refusal:
        try:
            body = _decode(text)
        except ValueError:
            body = text
        codes: list[str] = []
        if isinstance(body, dict):
            body = body.get("error", body)
        if isinstance(body, dict):
            codes = [str(body[name]) for name in ("code", "type") if body.get(name)]
            # FastAPI, which many servers use, sends `detail`: a text, or a list of validation errors.
            body = body.get("message") or body.get("detail") or body
        said = body if isinstance(body, str) else json.dumps(body) if body else ""
        return cls(status, headers, _one_line(said or f"status {status}, and not why"), codes)


def _host(base_url: str) -> str:
    """The host of a base URL. Rejects URLs that cannot work and URLs that would expose a secret."""
    try:
        parts = urlsplit(base_url)
        host = parts.hostname or ""
        host.encode("idna")
        valid = (
            parts.scheme in ("http", "https")
            and host.strip(".")
            and parts.port != 0
            and base_url.isprintable()
        )
    except ValueError:
        valid = False
    if not valid:
        shown = "" if "@" in base_url else f" {redact(base_url)!r}"
        raise ConfigError(f"--base-url{shown}: expected http://host/v1 or https://host:port/v1")
    if parts.username is not None or parts.query or parts.fragment or "@" in parts.path:
        raise ConfigError(
            "--base-url: no password, query or fragment in it; name the key's variable with --api-key-var"
        )
    return host


def _proxy(url: str) -> dict[str, Any]:
    """The environment's proxy for this URL, as keyword arguments for aiohttp.

    aiohttp's own `trust_env` is not used: it also reads .netrc before every call, and fails where it finds a
    password there in addition to the key.
    """
    parts, named = urlsplit(url), urllib.request.getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return {}
    found = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    # The credentials are passed in a header, not in the URL.
    address = found._replace(netloc=found.netloc.rpartition("@")[2]).geturl()
    if found.scheme not in ("http", "https") or not found.hostname:
        raise ConfigError(
            f"the environment names the proxy {address} for {parts.hostname}: expected http://host:port; "
            f"set NO_PROXY={parts.hostname} to go without one"
        )
    if found.username is None:
        return {"proxy": address}
    login = base64.b64encode(f"{unquote(found.username)}:{unquote(found.password or '')}".encode()).decode()
    return {"proxy": address, "proxy_headers": {"Authorization": f"Basic {login}"}}


def _one_line(text: object) -> str:
    # Redact before truncating: a truncated key would no longer match, and half a key is still a secret.
    line = " ".join(redact(str(text)).split()) or type(text).__name__
    return line if len(line) <= 300 else f"{line[:300]}…"


def _exhausted(headers: Mapping[str, str]) -> bool:
    """Whether a rate-limit header says that no calls or no tokens remain."""
    return any(
        name.lower().startswith(("x-ratelimit-remaining", "ratelimit-remaining")) and value.strip() == "0"
        for name, value in headers.items()
    )


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """`Retry-After` in seconds, from a number or a date; None where it is missing or invalid."""
    value = headers.get("Retry-After")
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d*)?\s*", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
