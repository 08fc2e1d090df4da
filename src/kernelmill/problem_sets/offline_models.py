"""Models of the Hugging Face Hub without the Hub: built from a table of sizes, with random weights.

KernelBench's level 4 calls `AutoConfig.from_pretrained(name)` and `AutoModelForCausalLM.from_pretrained(name, config=…)`. `install`
puts others in their place, in this process: the configuration comes from `model_configs.json`, and the model is made from it with
weights that nobody trained. What a kernel has to compute is the same; what the model would say is not. A name that is not in the table
is an error, never a download.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Size = Literal["full", "small"]

_size: list[Size] = ["full"]


@lru_cache(1)
def table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        Path(__file__).with_name("model_configs.json").read_text(encoding="utf-8")
    )
    return found


def config_of(name: str, **changes: Any) -> Any:
    """The configuration of a model by its name on the Hub, in the size that is set now."""
    from transformers import AutoConfig

    entry = table().get(name)
    if entry is None:
        raise LookupError(
            f"{name} is not among the models whose sizes are known here ({', '.join(table())}), and nothing is downloaded"
        )
    return AutoConfig.for_model(entry["type"], **{**entry[_size[0]], **changes})


@contextlib.contextmanager
def sized(size: Size) -> Iterator[None]:
    """`small`: models of two narrow layers, for what is tried on a CPU."""
    before, _size[0] = _size[0], size
    try:
        yield
    finally:
        _size[0] = before


def install() -> None:
    """From here on nothing of `transformers` is downloaded in this process."""
    transformers: Any = importlib.import_module("transformers")
    factory: Any = importlib.import_module("transformers.models.auto.auto_factory")

    def config(cls: Any, name: str, /, **changes: Any) -> Any:
        return config_of(name, **{key: value for key, value in changes.items() if key not in _LOADING})

    def auto_model(cls: Any, name: str, /, *_: Any, config: Any = None, **__: Any) -> Any:
        # As `from_pretrained` leaves it: not in training.
        return cls.from_config(config if config is not None else config_of(name)).eval()

    def model(cls: Any, name: str, /, *_: Any, config: Any = None, **__: Any) -> Any:
        return cls(config if config is not None else config_of(name)).eval()

    transformers.AutoConfig.from_pretrained = classmethod(config)
    factory._BaseAutoModelClass.from_pretrained = classmethod(auto_model)
    transformers.PreTrainedModel.from_pretrained = classmethod(model)


_LOADING = {
    "cache_dir",
    "force_download",
    "local_files_only",
    "token",
    "revision",
    "trust_remote_code",
    "subfolder",
}
"""What says how to download, and nothing about the model."""
