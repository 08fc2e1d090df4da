"""The vocabulary shared by Qwen2 and Qwen3, available offline, and token counts before a call is made.

The vocabulary ships inside a PyPI package (the extra `offline`). Without it, the count before a call is
estimated from the number of characters; `TokenCounter.how` says which. Chats under a template are counted by
`chat_tokens`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tiktoken import Encoding

CHARACTERS_A_TOKEN = 3.5
"""Python source has 3 to 4 characters per token in common vocabularies."""

QWEN_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Pre-tokenization pattern: splits a text into pieces that are encoded one by one."""

QWEN3_ADDED_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>",
    "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
)  # fmt: skip
"""Texts that are one token each, wherever they occur. The first has the id after the vocabulary's last."""


class TokenCounter(NamedTuple):
    count: Callable[[str], int]
    how: str


def embedded_vocabulary_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tiktoken", "dashscope"))


def qwen_ranks() -> dict[bytes, int]:
    """The 151,643 tokens and their ranks. Requires `embedded_vocabulary_is_installed`."""
    import base64
    from pathlib import Path

    # Located without importing the package, because that would load an HTTP client.
    package = importlib.util.find_spec("dashscope")
    assert package is not None
    assert package.origin is not None
    lines = (Path(package.origin).parent / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


@lru_cache(1)
def qwen_encoding() -> Encoding:
    """The vocabulary as an encoder without added tokens."""
    import tiktoken

    return tiktoken.Encoding("qwen", pat_str=QWEN_PATTERN, mergeable_ranks=qwen_ranks(), special_tokens={})


@lru_cache(1)
def token_counter() -> TokenCounter:
    if not embedded_vocabulary_is_installed():
        return TokenCounter(
            lambda text: round(len(text) / CHARACTERS_A_TOKEN), f"{CHARACTERS_A_TOKEN} characters a token"
        )
    encoding = qwen_encoding()
    return TokenCounter(lambda text: len(encoding.encode_ordinary(text)), "counted with the Qwen vocabulary")
