"""Counting tokens before a call is made.

With the extra `offline` the count is by the vocabulary that Qwen2 and Qwen3 share, which ships inside a PyPI package and
needs no network. Without it, it is an estimate from the number of characters. The caller says which it was.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

CHARACTERS_A_TOKEN = 3.5
"""Python source runs at 3 to 4 characters a token in the usual vocabularies."""

_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class TokenCounter(NamedTuple):
    count: Callable[[str], int]
    how: str


def embedded_vocabulary_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tiktoken", "dashscope"))


@lru_cache(1)
def token_counter() -> TokenCounter:
    if not embedded_vocabulary_is_installed():
        return TokenCounter(
            lambda text: round(len(text) / CHARACTERS_A_TOKEN), f"{CHARACTERS_A_TOKEN} characters a token"
        )
    import base64
    from pathlib import Path

    import tiktoken

    # Found without importing the package, which would load an HTTP client.
    package = importlib.util.find_spec("dashscope")
    assert package is not None
    assert package.origin is not None
    ranks = {}
    for line in (Path(package.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    encoding = tiktoken.Encoding("qwen", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})
    return TokenCounter(lambda text: len(encoding.encode_ordinary(text)), "counted with the Qwen vocabulary")
