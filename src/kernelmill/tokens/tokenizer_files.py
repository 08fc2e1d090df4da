"""Find a tokenizer: a registered one, a local folder, or one commit on the Hugging Face Hub.

    qwen-embedded                       the Qwen3 vocabulary and our own chat template; needs no network
    another name of `TOKENIZERS`        of a plug-in
    some/folder                         tokenizer.json, tokenizer_config.json, chat_template.jinja
    org/name  org/name@revision         the same files, downloaded into the Hub cache

Does not read the files; see `chat_tokens`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelmill.errors import ConfigError, SourceError
from kernelmill.settings.registry import Registry
from kernelmill.store.hub import why_not
from kernelmill.store.hub_http import http_error

if TYPE_CHECKING:
    from kernelmill.tokens.chat_tokens import ChatTokenizer

EMBEDDED = "qwen-embedded"
TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_HUB = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?$")
_OTHERWISE = f"give a folder that holds {TOKENIZER}, or --tokenizer {EMBEDDED}, which needs no network"


class TokenizerFiles(NamedTuple):
    name: str
    """The name as given by the user."""
    folder: str | None
    """None for a name of `TOKENIZERS`. A string, not a `Path`, because it is sent to other processes."""
    revision: str | None = None
    """Commit on the Hub; name and version of the plug-in that has it."""

    @property
    def origin(self) -> dict[str, Any]:
        """For reports: the tokenizer used, without local paths."""
        kinds = ("embedded", "plug-in") if self.folder is None else ("folder", "hub")
        return {"name": self.name, "kind": kinds[self.revision is not None], "revision": self.revision}


class NamedTokenizer(NamedTuple):
    what: str
    load: Callable[[TokenizerFiles], ChatTokenizer]


def _embedded(files: TokenizerFiles) -> ChatTokenizer:
    from kernelmill.tokens.chat_tokens import embedded

    return embedded(files)


TOKENIZERS = Registry(
    "tokenizer",
    "kernelmill.tokenizers",
    NamedTokenizer,
    {EMBEDDED: NamedTokenizer("the Qwen3 vocabulary; needs no network", _embedded)},
)
"""Tokenizers by a name of their own. Folders and names on the Hub need no entry."""


def find_tokenizer(name: str, token: str | None = None) -> TokenizerFiles:
    """Find what `--tokenizer` names. Downloads a Hub tokenizer, all files from the same commit."""
    if name in TOKENIZERS:
        return TokenizerFiles(name, None)
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:  # an unknown ~user
        raise ConfigError(f"--tokenizer {name}: not a path ({error})") from None
    if "/" not in name and (origin := TOKENIZERS.origin(name)) is not None:
        if folder.exists():
            raise ConfigError(
                f"--tokenizer {name}: a folder and the plug-in {origin} have it: write ./{name} for the folder"
            )
        return TokenizerFiles(name, None, origin)
    if folder.is_dir():
        if not (folder / TOKENIZER).is_file():
            raise ConfigError(f"{name} holds no {TOKENIZER}: is it the folder of a tokenizer?")
        return TokenizerFiles(name, str(folder))
    if folder.exists():
        raise ConfigError(f"--tokenizer {name} is a file: name the folder that holds it")
    hub = _HUB.match(name)
    if hub is None:
        raise ConfigError(
            f"--tokenizer {name}: no such folder, nor a name on the Hub (org/name): {_OTHERWISE}"
        )
    return _download(name, hub["repo"], hub["revision"], token)


def _download(name: str, repo: str, revision: str | None, token: str | None) -> TokenizerFiles:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        info = HfApi(token=token or False).model_info(repo, revision=revision)
        there = {item.rfilename for item in info.siblings or []}
        if TOKENIZER not in there:
            raise SourceError(f"{repo} on the Hub has no {TOKENIZER}: name another, or {_OTHERWISE}")
        paths = [
            Path(hf_hub_download(repo, file, revision=info.sha, token=token or False))
            for file in (TOKENIZER, CONFIG, TEMPLATE)
            if file in there
        ]
    except HFValidationError as error:
        raise ConfigError(
            f"--tokenizer {name}: no such folder, nor a name on the Hub: {_OTHERWISE}"
        ) from error
    except (HfHubHTTPError, LocalEntryNotFoundError, http_error(), OSError) as error:
        raise SourceError(f"--tokenizer {name}: {why_not(repo, error, 'model')}, or {_OTHERWISE}") from error
    return TokenizerFiles(name, str(paths[0].parent), info.sha)
