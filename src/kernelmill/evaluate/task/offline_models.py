"""Build models of the Hugging Face Hub offline, from a table of sizes, with random weights.

KernelBench's level 4 calls `AutoConfig.from_pretrained(name)` and
`AutoModelForCausalLM.from_pretrained(name, config=…)`. `install` replaces both in this process: the
configuration comes from `model_configs.json`, and the model has random weights. A kernel has to compute the
same function; only the model's answers mean nothing. A name that is not in the table is an error and never a
download.

As with a download, a model of one name has the same weights wherever it is loaded. They depend on the name
and on the last seed that was set, not on numbers drawn since. So a candidate that loads the model and adds to
it has the reference's weights.

Importing `transformers` takes seconds and hundreds of megabytes. So a server imports it in `load`, before it
forks, and only if its environment asks for it (`prepare`). References that do not use it are judged by other
servers.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Size = Literal["full", "small"]

VARIABLE = "KERNEL_OFFLINE_MODELS"
"""Environment variable of a server: the size of its models. Without it there are none."""
_USES = re.compile(r"^\s*(?:from|import)\s+transformers\b", re.MULTILINE)
_size: list[Size] = ["full"]


def imports_transformers(code: str) -> bool:
    """Whether a source imports `transformers`."""
    return _USES.search(code) is not None


def needs_transformers(code: str) -> bool:
    """Whether a source imports `transformers` and it is installed."""
    return imports_transformers(code) and importlib.util.find_spec("transformers") is not None


def environment_for(code: str, size: Size) -> dict[str, str]:
    """The environment variables of a server that can run a source: with models if it uses them."""
    return {VARIABLE: size} if needs_transformers(code) else {}


def prepare() -> None:
    """Load the models in a server, before it forks, if its environment asks for them."""
    size = os.environ.get(VARIABLE)
    if size is not None:
        load("full" if size == "full" else "small")


def load(size: Size) -> None:
    """Import what the known models need, and `install`. This takes seconds, too long for each child."""
    logging: Any = importlib.import_module("transformers.utils.logging")
    logging.set_verbosity_error()
    install()
    for kind in sorted({entry["type"] for entry in table().values()}):
        importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    _size[0] = size


@lru_cache(1)
def table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("model_configs.json").read_text(encoding="utf-8")
    )
    return found


def names_in(code: str) -> list[str]:
    """The known models that a source names."""
    return [name for name in table() if f'"{name}"' in code or f"'{name}'" in code]


def shrunk(code: str) -> dict[str, list[int]]:
    """The sizes that differ in the small models that a source names: by name, the old and the new value.

    Empty in a server without small models.
    """
    if os.environ.get(VARIABLE) != "small":
        return {}
    return {
        f"{name}.{field}": [value, small]
        for name in names_in(code)
        for field, value in table()[name]["full"].items()
        if type(value) is int and (small := table()[name]["small"].get(field, value)) != value
    }


def config_of(name: str, **changes: Any) -> Any:
    """The configuration of a model by its name on the Hub, in the current size."""
    from transformers import AutoConfig

    entry = table().get(name)
    if entry is None:
        raise LookupError(
            f"{name} is not among the models whose sizes are known here ({', '.join(table())}), and nothing is downloaded"
        )
    return AutoConfig.for_model(entry["type"], **{**entry[_size[0]], **changes})


@contextlib.contextmanager
def sized(size: Size) -> Iterator[None]:
    """Set the size of models inside the context. `small`: models of two narrow layers, for runs on a CPU."""
    before, _size[0] = _size[0], size
    try:
        yield
    finally:
        _size[0] = before


def install() -> None:
    """Replace `from_pretrained` in this process, so that configurations and models are not downloaded."""
    transformers: Any = importlib.import_module("transformers")
    factory: Any = importlib.import_module("transformers.models.auto.auto_factory")

    def config(cls: Any, name: str, /, *_: Any, **changes: Any) -> Any:
        return config_of(name, **{key: value for key, value in changes.items() if key not in _LOADING})

    def auto_model(cls: Any, name: str, /, *_: Any, config: Any = None, **how: Any) -> Any:
        return _made(cls.from_config, name, config, how)

    def model(cls: Any, name: str, /, *_: Any, config: Any = None, **how: Any) -> Any:
        return _made(cls._from_config, name, config, how)

    transformers.AutoConfig.from_pretrained = classmethod(config)
    transformers.PreTrainedConfig.from_pretrained = classmethod(config)
    factory._BaseAutoModelClass.from_pretrained = classmethod(auto_model)
    transformers.PreTrainedModel.from_pretrained = classmethod(model)


def _made(make: Callable[..., Any], name: str, config: Any, how: Mapping[str, Any]) -> Any:
    from kernelmill.evaluate.task.values import seeded_apart  # needs torch

    config = config_of(name) if config is None else config
    said = {
        key: value for key, value in how.items() if key in _KEPT and not (value is None or value == "auto")
    }
    with seeded_apart(zlib.crc32(name.encode())):
        # `from_pretrained` returns models in eval mode, too.
        return make(config, **said).eval()


_KEPT = {"dtype", "torch_dtype", "attn_implementation"}
"""Arguments that say how the model computes. The others say how to download it and where to put it."""
_LOADING = {
    "cache_dir",
    "force_download",
    "local_files_only",
    "token",
    "revision",
    "trust_remote_code",
    "subfolder",
}
"""Arguments that say how to download a configuration, and nothing about the model."""


def plain(value: Any) -> dict[str, Any] | None:
    """A configuration as JSON values, to send it to another process; None for any other value."""
    module: Any = sys.modules.get("transformers.configuration_utils")
    if module is None or module.PreTrainedConfig not in type(value).__mro__:
        return None
    fields: dict[str, Any] = json.loads(value.to_json_string(use_diff=False))
    return fields


def from_plain(fields: dict[str, Any]) -> Any:
    """Rebuild a configuration from `plain`."""
    from transformers import AutoConfig

    rest = {key: value for key, value in fields.items() if key not in ("model_type", "transformers_version")}
    return AutoConfig.for_model(fields["model_type"], **rest)
