"""Load a tokenizer and count the tokens of a chat as a model's trainer would: vocabulary and chat templates.

    files = find_tokenizer("Qwen/Qwen3-30B-A3B-Thinking-2507", secret("HF_TOKEN"))
    tokenizer = load_tokenizer(files)
    text = tokenizer.render([{"role": "user", "content": "Hello"}])
    tokenizer.tokens.measure(text)

Counts equal those of `apply_chat_template` and `encode` in `transformers`, which is not loaded. Reads
`tokenizer.json` only, not SentencePiece models or slow tokenizers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kernelmill.base.missing import install
from kernelmill.base.resources import bundled
from kernelmill.errors import ConfigError
from kernelmill.tokens.chat_template import ChatTemplate
from kernelmill.tokens.text_tokens import PIECES, EmbeddedTokens, FastTokens, LibraryTokens, TextTokens
from kernelmill.tokens.tokenizer_files import (
    CONFIG,
    EMBEDDED,
    TEMPLATE,
    TOKENIZER,
    TOKENIZERS,
    TokenizerFiles,
)
from kernelmill.tokens.vocabulary import QWEN3_ADDED_TOKENS, QWEN_PATTERN, embedded_vocabulary_is_installed

_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class ChatTokenizer:
    """A vocabulary and its chat templates: `default`, and optionally `tool_use` for chats with tools."""

    def __init__(
        self,
        files: TokenizerFiles,
        tokens: TextTokens,
        templates: Mapping[str, str],
        variables: Mapping[str, Any],
    ) -> None:
        self.tokens = tokens
        self.template_sha256 = hashlib.sha256(templates["default"].encode()).hexdigest()
        self._templates = {
            name: ChatTemplate(text, variables, files.name) for name, text in templates.items()
        }

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Any] | None = None,
        generation_prompt: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a chat as one text. Raises `TemplateFailed`."""
        name = "tool_use" if tools is not None and "tool_use" in self._templates else "default"
        return self._templates[name].render(messages, tools, generation_prompt, variables)


@lru_cache(2)
def load_tokenizer(files: TokenizerFiles) -> ChatTokenizer:
    """Load a tokenizer.

    Cached per process: loading takes half a second, and the tokenizer caches its counts.
    """
    if files.folder is None:
        return TOKENIZERS.find(files.name).load(files)
    folder = Path(files.folder)
    config = _json(folder / CONFIG, files.name) if (folder / CONFIG).is_file() else {}
    return ChatTokenizer(
        files, _tokens(folder, config, files.name), _templates(folder, config, files.name), _variables(config)
    )


def embedded(files: TokenizerFiles) -> ChatTokenizer:
    """Load the embedded vocabulary."""
    if not embedded_vocabulary_is_installed():
        raise ConfigError(f"--tokenizer {EMBEDDED} needs the vocabulary: {install('offline')}")
    template = bundled("prompts/chat_templates/qwen3_thinking.jinja").read_text(encoding="utf-8")
    tokens = FastTokens(EmbeddedTokens(), QWEN_PATTERN, list(QWEN3_ADDED_TOKENS))
    return ChatTokenizer(
        files, tokens, {"default": template}, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    )


def _tokens(folder: Path, config: dict[str, Any], name: str) -> TextTokens:
    from tokenizers import AddedToken, Tokenizer  # slow to load, and not needed for the embedded vocabulary

    path = folder / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001  the library raises a bare Exception for any bad file
        raise ConfigError(f"{name}: {TOKENIZER} cannot be read ({' '.join(str(error).split())})") from None
    # A maximum length that was saved for serving must not truncate what is counted.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    for token in config.get("added_tokens_decoder", {}).values():
        # Some tokenizers list a token only in their config. transformers adds it, so we do too.
        if token["content"] not in known:
            tokenizer.add_tokens([AddedToken(**{key: token[key] for key in token if key != "__type"})])
    pattern = _pattern(path)
    added = list(tokenizer.get_added_tokens_decoder().values())
    plain = not any(token.lstrip or token.rstrip or token.single_word or token.normalized for token in added)
    library = LibraryTokens(tokenizer)
    if pattern is None or not plain:
        return library
    return FastTokens(library, pattern, [token.content for token in added])


class _Model(Struct):
    """The fields of a tokenizer model that are read. Its vocabulary, which is megabytes, is skipped."""

    type: str | None = None
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None


class _Spec(Struct):
    model: _Model
    normalizer: Any = None
    pre_tokenizer: Any = None


def _pattern(path: Path) -> str | None:
    """The pre-tokenization pattern if `FastTokens` counts this tokenizer as the library does; else None."""
    try:
        spec = msgspec.json.decode(path.read_bytes(), type=_Spec)
    except msgspec.ValidationError:
        return None  # a format that the library reads and we do not know
    model = spec.model
    if model.type != "BPE" or model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    match spec.normalizer, spec.pre_tokenizer:
        case None | {"type": "NFC"}, {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": str(pattern)},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        } if pattern in PIECES:
            return pattern
    return None


def _templates(folder: Path, config: dict[str, Any], name: str) -> dict[str, str]:
    try:
        if (folder / TEMPLATE).is_file():
            return {"default": (folder / TEMPLATE).read_text(encoding="utf-8")}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {TEMPLATE} cannot be read ({error})") from None
    match config.get("chat_template"):
        case str(text):
            return {"default": text}
        case [*named] if all(isinstance(part, dict) and {"name", "template"} <= set(part) for part in named):
            templates = {str(part["name"]): str(part["template"]) for part in named}
            if "default" in templates:
                return templates
    raise ConfigError(
        f"{name} has no chat template ({TEMPLATE}, or chat_template in {CONFIG}): use the tokenizer of the model's chat version"
    )


def _variables(config: dict[str, Any]) -> dict[str, Any]:
    """Special tokens by name. The config holds them as texts or as objects."""
    found: dict[str, Any] = {}
    for key in _SPECIAL:
        value = config.get(key)
        if value := value.get("content") if isinstance(value, dict) else value:
            found[key] = value
    return found


def _json(path: Path, name: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"{name}: {path.name} cannot be read ({error.strerror})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {path.name} is not a JSON object ({error})") from None
