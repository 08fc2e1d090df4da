"""Where a tokenizer is: the embedded vocabulary, a local folder, or the files of one commit on the Hugging Face Hub.

    qwen-embedded                       the vocabulary of Qwen3 and our own chat template: no network
    some/folder                         tokenizer.json, tokenizer_config.json, chat_template.jinja
    org/name  org/name@revision         the same files from the Hub, into its cache

Does not read the files; see `chat_tokens`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.errors import ConfigError, SourceError
from kernelmill.store.hub import why_not
from kernelmill.store.hub_http import http_error

EMBEDDED = "qwen-embedded"
TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
_HUB = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[^@\s]+))?$")
_OTHERWISE = f"give a folder that holds {TOKENIZER}, or --tokenizer {EMBEDDED}, which needs no network"


class TokenizerFiles(NamedTuple):
    name: str
    """As it was asked for."""
    folder: str | None
    """None for the embedded vocabulary. A text and not a path, for it is sent to other processes."""
    revision: str | None = None
    """The commit on the Hub."""

    @property
    def origin(self) -> dict[str, Any]:
        """For reports: what was used, without where it lies on this machine."""
        kind = "embedded" if self.folder is None else "folder" if self.revision is None else "hub"
        return {"name": self.name, "kind": kind, "revision": self.revision}


def find_tokenizer(name: str, token: str | None = None) -> TokenizerFiles:
    """Find what `--tokenizer` names; a name on the Hub is downloaded, all files of the same commit."""
    if name == EMBEDDED:
        return TokenizerFiles(name, None)
    try:
        folder = Path(name).expanduser()
    except RuntimeError as error:  # ~nobody-of-that-name
        raise ConfigError(f"--tokenizer {name}: not a path ({error})") from None
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
