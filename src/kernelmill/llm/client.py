"""One call to an OpenAI-compatible endpoint, and what its failure means.

The official `openai` client does the talking, over its aiohttp transport. The request is built and hashed here, sent
byte for byte, and the response handed on as the server sent it. Retries are the engine's business: here a failure is
only told apart as one that may pass (`TransientError`), one that concerns this request alone (`RequestRefused`), and one
that no retry will mend (`EndpointError`).
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import re
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from kernelmill.config import redact, secret
from kernelmill.errors import ConfigError, EndpointError
from kernelmill.settings import LLMSettings, Price

_KEY_VARIABLES = {"api.pinference.ai": "PRIME_API_KEY", "api.openai.com": "OPENAI_API_KEY"}
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|(prompt|input)s? (\(.{0,40}\) )?is (too (long|large)|longer than)|maximum.{0,40}(tokens|model length)|must have less than \d+ tokens",
    re.I,
)
"""How OpenAI, vLLM, SGLang, llama.cpp and others say that a request is too long."""


class Request(NamedTuple):
    """A question. `key` is the hash of all of it: endpoint, model, messages, sampling."""

    key: str
    body: bytes


class TransientError(Exception):
    """Asking again may help. `pushed_back` says that the server wants fewer calls."""

    def __init__(self, reason: str, pushed_back: bool = False, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.pushed_back = pushed_back
        self.retry_after = retry_after


class RequestRefused(Exception):
    """The server will not answer this request, however often it is asked; others may be fine.

    `too_long` says that it is too long for the model; `about_size`, that this tells nothing about the others: where the
    server names the limit that we asked for, it may be that limit which is too large for all of them.
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        ours = re.search(r"max_(completion_)?tokens", reason)
        self.too_long = status == 413 or _TOO_LONG.search(reason) is not None
        self.about_size = self.too_long and (status == 413 or ours is None)


class Reply(NamedTuple):
    """A response, read. Tokens are None where the server did not count them."""

    text: str
    finish: str | None
    refusal: str | None
    reasoning: str
    """Thoughts that the server gave apart from the text."""
    tokens_in: int | None
    tokens_out: int | None
    tokens_reasoning: int | None
    tokens_cached: int | None


def read_reply(response: str) -> Reply:
    """Read a response. Raises `ValueError` for what is no chat completion.

    What was paid for must not be lost to a field that nobody needs: only the first choice is looked at, counts that make no
    sense are taken as unknown, and NaN or half a surrogate pair somewhere in the body does not matter.
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
    # Some servers give both fields with the same text.
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
    """A number of tokens, or None where there is none that makes sense."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(usage, str) and usage.isascii() and usage.isdigit() and len(usage) < 19:
        usage = int(usage)
    if isinstance(usage, float) and usage.is_integer():
        usage = int(usage)
    return usage if isinstance(usage, int) and not isinstance(usage, bool) and 0 <= usage < 2**62 else None


def _utf8(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def cost_of(reply: Reply, price: Price | None) -> float | None:
    """US dollars, or None where the price or the tokens are not known."""
    if price is None or reply.tokens_in is None or reply.tokens_out is None:
        return None
    cached = min(reply.tokens_cached or 0, reply.tokens_in) if price.cached_input is not None else 0
    dollars = (reply.tokens_in - cached) * price.input + reply.tokens_out * price.output
    return (dollars + cached * (price.cached_input or 0.0)) / 1e6


class Endpoint:
    """An endpoint and a model, as the settings name them. Makes requests; sends them once opened."""

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
        self.key_variable = settings.api_key_var or _KEY_VARIABLES.get(host)
        self._sampling = settings.sampling.model_dump(exclude_none=True, exclude={"extra_body"})
        self._sampling |= settings.sampling.extra_body

    def check_key(self) -> None:
        """Fail before any work is done when a key is needed and not there, or cannot be one."""
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

    def request(self, messages: list[dict[str, str]], sample: int = 0) -> Request:
        """The request for these messages. `sample` tells apart several answers wanted to one question."""
        body = msgspec.json.encode({"model": self.model, "messages": messages, **self._sampling})
        asked = hashlib.sha256(f"{self.name}\n{sample}\n".encode())
        asked.update(body)
        return Request(asked.hexdigest(), body)

    async def __aenter__(self) -> Endpoint:
        import openai

        most = self.settings.concurrency
        headers = {"Content-Type": "application/json"}
        team = secret("PRIME_TEAM_ID")
        if team and self.key_variable == "PRIME_API_KEY":
            headers["X-Prime-Team-ID"] = team
        self._client = openai.AsyncOpenAI(
            base_url=self.settings.base_url,
            # vLLM and SGLang take any key; the client insists on one.
            api_key=(secret(self.key_variable) if self.key_variable else None) or "none",
            max_retries=0,
            default_headers=headers,
            http_client=openai.DefaultAioHttpClient(
                timeout=_timeouts(self.settings.timeout),
                limits=_limits(most),
                trust_env=True,
                follow_redirects=False,
            ),
        )
        # The client would send OPENAI_ORG_ID and OPENAI_PROJECT_ID to whatever endpoint this is.
        self._client.organization = self._client.project = None
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def call(self, body: bytes) -> str:
        """Send one request; the response as text. Raises one of the three kinds of failure."""
        import aiohttp
        import httpx2
        import openai

        try:
            # The client's own time-out is for each read: a server that drips would never reach it.
            async with asyncio.timeout(self.settings.timeout):
                response = await self._client.post("/chat/completions", cast_to=httpx2.Response, content=body)
                return response.content.decode("utf-8", "replace")
        except TimeoutError:
            raise TransientError(f"no answer within {self.settings.timeout:g} s") from None
        except openai.APIConnectionError as error:
            raise self._connection(error) from None
        except openai.APIStatusError as error:
            raise self._status(error) from None
        except (
            aiohttp.ClientError,
            httpx2.HTTPError,
            httpx2.StreamError,
            ValueError,
            LookupError,
            AssertionError,
        ) as error:
            # What the libraries let through when a server does not speak HTTP: this call's trouble, not the run's.
            raise TransientError(f"the server's answer cannot be read ({_one_line(error)})") from None

    def _connection(self, error: BaseException) -> TransientError:
        """The client calls a refused connection a time-out, so look at what lies beneath."""
        import aiohttp

        while error.__cause__ is not None:
            error = error.__cause__
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ConnectionTimeoutError):
            return TransientError(f"no answer within {self.settings.timeout:g} s")
        return TransientError(f"connection failed ({_one_line(error)})")

    def _status(self, error: Any) -> Exception:
        status, said = error.status_code, _said(error)
        code = str(error.code or error.type or "")
        host = self.name
        if "insufficient_quota" in (error.code, error.type) or status == 402:
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
                f"{host} sends us elsewhere ({status}, to {_one_line(error.response.headers.get('location'))}): check --base-url"
            )
        if status in (429, 503, 529):
            return TransientError(
                f"{status}: {said}", pushed_back=True, retry_after=_retry_after(error.response.headers)
            )
        if status >= 500 or status in (408, 409, 425):
            return TransientError(f"{status}: {said}", retry_after=_retry_after(error.response.headers))
        return RequestRefused(f"{status}{f' {code}' if code else ''}: {said}", status)


def _host(base_url: str) -> str:
    """The host of an endpoint's address. Refuses what would not work, or would put a secret where it can be read."""
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


def _timeouts(seconds: float) -> Any:
    import httpx2

    # Waiting for a connection of the pool does not count: the limiter has let the call through already.
    return httpx2.Timeout(seconds, connect=min(30.0, seconds), pool=None)


def _limits(most: int) -> Any:
    import httpx2

    return httpx2.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=60)


def _said(error: Any) -> str:
    """What the server gave as its reason, on one line."""
    body = error.body
    if isinstance(body, dict):
        # FastAPI, on which many servers are built, says `detail`: a text, or a list of what is wrong where.
        body = body.get("message") or body.get("detail") or body
    return _one_line(body if isinstance(body, str) else json.dumps(body) if body else error.message)


def _one_line(text: object) -> str:
    # Secrets are taken out first: half a key is one too.
    line = " ".join(redact(str(text)).split()) or type(text).__name__
    return line if len(line) <= 300 else f"{line[:300]}…"


def _retry_after(headers: Any) -> float | None:
    """`Retry-After` in seconds, as a number or a date; None where there is none, or it makes no sense."""
    value = headers.get("retry-after")
    if value is None:
        return None
    if re.fullmatch(r"\s*\d+(\.\d*)?\s*", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
