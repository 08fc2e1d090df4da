"""Write a `transformers` model as a source, from its configuration: random weights, nothing is downloaded.

The name is a model type (`bert`, `llama`, `vit`) with the default sizes of its configuration, or a name from
the table in `evaluate.task.offline_models` (`facebook/opt-1.3b`). The source states everything: class, sizes,
inputs. Inputs follow the model's task: token ids, pixel values, audio or audio features. Batch size and
lengths are chosen here.
"""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

from kernelmill.decompose.sources.problem_files import ModelFile
from kernelmill.errors import SourceError
from kernelmill.evaluate.task import offline_models

BATCH, SEQUENCE, SAMPLES, IMAGE, VOCABULARY = 2, 32, 16_000, 224, 1_000
_HEADS = (
    ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "image"),
    ("AutoModelForSpeechSeq2Seq", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES", "features"),
    ("AutoModelForCTC", "MODEL_FOR_CTC_MAPPING_NAMES", "sound"),
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "two texts"),
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "text"),
    ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "text"),
)
"""The first one that knows the type is used; without one, the bare model."""
_MAPPINGS = {made_by: mapping for made_by, mapping, _ in _HEADS}


class Input(NamedTuple):
    name: str
    drawn: str
    chosen: str


def hf_source(name: str, changes: dict[str, Any]) -> ModelFile:
    """The model as a source. Raises `SourceError` if there is no such configuration."""
    if importlib.util.find_spec("transformers") is None:
        raise SourceError(f"--hf-config {name}: it needs transformers, which is not installed")
    entry = offline_models.table().get(name)
    kind, fields = (entry["type"], {**entry["full"], **changes}) if entry else (name, changes)
    auto: Any = importlib.import_module("transformers.models.auto.modeling_auto")
    configs: Any = importlib.import_module("transformers.models.auto.configuration_auto")
    if kind not in configs.CONFIG_MAPPING_NAMES:
        table = ", ".join(offline_models.table())
        raise SourceError(
            f"--hf-config {name}: no type of model of transformers, nor one of {table}; nothing is downloaded"
        )
    try:
        config = configs.AutoConfig.for_model(kind, **fields)
    except Exception as error:  # noqa: BLE001  configurations validate their fields in many ways
        said = " ".join(str(error).split())[:300]
        raise SourceError(f"--hf-config {name}: {type(error).__name__}: {said}") from None
    known = {*configs.CONFIG_MAPPING[kind]().to_dict(), *config.attribute_map}
    if unknown := [key for key in changes if key not in known]:
        raise SourceError(f"--set {unknown[0]}=…: the configuration of {kind} has no such field")
    unstated: list[str] = []
    if getattr(config, "vocab_size", 0) is None:
        fields, config.vocab_size = {**fields, "vocab_size": VOCABULARY}, VOCABULARY
        unstated.append(f"vocab_size: {VOCABULARY}")
    made_by, given = _kind(kind, config, auto)
    heads = getattr(auto, _MAPPINGS.get(made_by, ""), {}).get(kind)
    if isinstance(heads, tuple) and not config.architectures:  # transformers does not choose by itself
        fields = {**fields, "architectures": [heads[0]]}
        unstated.append(f"architecture: {heads[0]}")
    options = ""
    if _has_experts(configs.model_type_to_module_name(kind)):
        options = ', experts_implementation="batched_mm"'
        unstated.append("experts: all tokens at once (batched_mm), whatever the router says")
    assumptions = (*unstated, *(one.chosen for one in given))
    text = _text(name, kind, fields, f"{made_by}.from_config(config{options})", given, config)
    return ModelFile(Path(f"transformers:{name}"), None, text, assumptions)


def _has_experts(module: str) -> bool:
    """Whether transformers lets the caller choose how a model's experts run.

    Its own loop over experts depends on where the router sends tokens, so one run does not describe another.
    """
    package = importlib.util.find_spec("transformers")
    assert package is not None
    folders = package.submodule_search_locations or []
    files = [Path(folder) / "models" / module / f"modeling_{module}.py" for folder in folders]
    return any(
        "@use_experts_implementation" in file.read_text(encoding="utf-8") for file in files if file.exists()
    )


def _kind(kind: str, config: Any, auto: Any) -> tuple[str, list[Input]]:
    for made_by, mapping, what in _HEADS:
        if kind in getattr(auto, mapping, {}):
            return made_by, _inputs(what, config)
    if kind not in auto.MODEL_MAPPING_NAMES:
        raise SourceError(f"--hf-config {kind}: transformers has no model of it that stands alone")
    if getattr(config, "vocab_size", None):
        return "AutoModel", _inputs("text", config)
    if getattr(config, "num_channels", None):
        return "AutoModel", _inputs("image", config)
    raise SourceError(
        f"--hf-config {kind}: what goes into it is not known here: write a file with a class Model"
    )


def _inputs(what: str, config: Any) -> list[Input]:
    ids = f"torch.randint(0, {getattr(config, 'vocab_size', 0)}, ({BATCH}, {SEQUENCE}))"
    tokens = f"batch {BATCH}, sequence {SEQUENCE}"
    if what == "image":
        size = getattr(config, "image_size", None) or IMAGE
        height, width = size if isinstance(size, list | tuple) else (size, size)
        shape = f"({BATCH}, {getattr(config, 'num_channels', 3)}, {height}, {width})"
        return [Input("pixel_values", f"torch.rand{shape}", f"pixel_values: batch {BATCH}, {height}x{width}")]
    if what == "sound":
        return [
            Input(
                "input_values",
                f"torch.randn({BATCH}, {SAMPLES})",
                f"input_values: batch {BATCH}, {SAMPLES} samples",
            )
        ]
    if what == "features":
        bins, length = getattr(config, "num_mel_bins", 80), 2 * getattr(config, "max_source_positions", 1500)
        said = f"input_features: batch {BATCH}, {length} frames"
        return [
            Input("input_features", f"torch.randn({BATCH}, {bins}, {length})", said),
            Input("decoder_input_ids", ids, f"decoder_input_ids: {tokens}"),
        ]
    first = Input("input_ids", ids, f"input_ids: {tokens}")
    return (
        [first, Input("decoder_input_ids", ids, f"decoder_input_ids: {tokens}")]
        if what == "two texts"
        else [first]
    )


def _text(name: str, kind: str, fields: dict[str, Any], made: str, given: list[Input], config: Any) -> str:
    said = ", ".join([repr(kind), *(f"{key}={value!r}" for key, value in fields.items())])
    names = ", ".join(one.name for one in given)
    passed = [f"{one.name}={one.name}" for one in given]
    if hasattr(config, "use_cache"):
        passed.append("use_cache=False")
    return f'''"""{name}, built from its configuration with random weights."""

import torch
from torch import nn
from transformers import AutoConfig, {made.partition(".")[0]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        config = AutoConfig.for_model({said})
        self.model = {made}

    def forward(self, {names}):
        return self.model({", ".join(passed)})[0]


def get_inputs():
    return [{", ".join(one.drawn for one in given)}]


def get_init_inputs():
    return []
'''
