"""A tokenizer folder as on the Hub, made from the embedded Qwen vocabulary.

For tests and benchmarks without a network.

    write_tokenizer(folder)     tokenizer.json  tokenizer_config.json  chat_template.jinja

The real `tokenizers` and `transformers` can load it. Writing takes two seconds and needs the extra `offline`.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from kernelmill.base.resources import bundled
from kernelmill.tokens.text_tokens import byte_letters
from kernelmill.tokens.vocabulary import QWEN3_ADDED_TOKENS, QWEN_PATTERN, qwen_ranks


def write_tokenizer(folder: Path, chat_template: str | None = None, tokens: int | None = None) -> Path:
    """Write the three files, with the bundled chat template unless another is given.

    With the first `tokens` of the vocabulary only, it is written and loaded in milliseconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tokenizer_json(tokens), ensure_ascii=False)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 262144,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    template = (
        bundled("prompts/chat_templates/qwen3_thinking.jinja").read_text(encoding="utf-8")
        if chat_template is None
        else chat_template
    )
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


def tokenizer_json(tokens: int | None = None) -> dict[str, Any]:
    """Return the vocabulary, or its first tokens, in the format of `tokenizers`: byte-level BPE, one merge a token."""
    ranks = dict(itertools.islice(qwen_ranks().items(), tokens))
    letters = byte_letters()

    def spelt(token: bytes) -> str:
        return "".join([letters[byte] for byte in token])

    merges = [
        [spelt(part) for part in _last_merge(token, rank, ranks)]
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
        if len(token) > 1
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": QWEN_PATTERN}, "behavior": "Isolated", "invert": False}
    added = [
        {
            "id": len(ranks) + number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": content.startswith("<|"),
        }
        for number, content in enumerate(QWEN3_ADDED_TOKENS)
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {spelt(token): rank for token, rank in ranks.items()}, "merges": merges,
        },
    }  # fmt: skip


def _last_merge(token: bytes, rank: int, ranks: dict[bytes, int]) -> list[bytes]:
    """Return the two parts that a token was merged from: what its bytes become after all earlier merges."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        found = [(ranks.get(a + b, rank), place) for place, (a, b) in enumerate(itertools.pairwise(parts))]
        best, place = min(found)
        assert best < rank
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts
