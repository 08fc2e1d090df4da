"""A Qwen3 of half a megabyte with random weights and a tokenizer of its own, as `transformers` opens them.

What it writes is nonsense made of pieces of the bundled problems, control characters and broken UTF-8 included. The tags of
thoughts and answers are tokens like the others, and one token in fifty ends an answer: some end by themselves before a limit
of some dozens of tokens, some do not.
"""

from __future__ import annotations

import json
from pathlib import Path

from kernelmill.base.resources import bundled

_SPECIAL = ["<|im_end|>", "<|endoftext|>", "<|im_start|>"]
_MARKS = ["<think>", "</think>", "<answer>", "</answer>"]
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
_VOCABULARY, _HIDDEN, _INNER, _LAYERS, _HEADS, _GROUPS, _HEAD = 384, 64, 128, 2, 4, 2, 16
_ENDS = [0, 1, *range(3, 9)]
"""The ends that are meant as such, and the first punctuation marks."""


def write_model(folder: Path) -> Path:
    """Write all that a server needs. The weights are the same each time."""
    folder.mkdir(parents=True)
    _write_tokenizer(folder)
    _write_weights(folder)
    _write(
        folder / "config.json",
        architectures=["Qwen3ForCausalLM"], model_type="qwen3", dtype="float32", tie_word_embeddings=False,
        vocab_size=_VOCABULARY, hidden_size=_HIDDEN, intermediate_size=_INNER, num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS, num_key_value_heads=_GROUPS, head_dim=_HEAD, max_position_embeddings=32768,
    )  # fmt: skip
    # Unless the model says that it is sampled, the server takes the likeliest token, at whatever temperature.
    _write(folder / "generation_config.json", do_sample=True, eos_token_id=_ENDS, pad_token_id=1)
    return folder


def _write(path: Path, **content: object) -> None:
    path.write_text(json.dumps(content), encoding="utf-8")


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY - len(_MARKS), special_tokens=_SPECIAL, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    texts = (file.read_text(encoding="utf-8") for file in sorted(bundled("data/problems").rglob("*.py")))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in _MARKS])
    tokenizer.save(str(folder / "tokenizer.json"))
    _write(
        folder / "tokenizer_config.json",
        tokenizer_class="PreTrainedTokenizerFast", eos_token=_SPECIAL[0], pad_token=_SPECIAL[1],
    )  # fmt: skip
    (folder / "chat_template.jinja").write_text(_TEMPLATE, encoding="utf-8")


def _write_weights(folder: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    tensors = {"model.norm.weight": np.ones(_HIDDEN, dtype=np.float32)}

    def linear(name: str, outputs: int, inputs: int) -> None:
        tensors[f"{name}.weight"] = (0.02 * random.standard_normal((outputs, inputs))).astype(np.float32)

    # The embeddings are not tied: with tied ones a model without training repeats what it was told.
    linear("model.embed_tokens", _VOCABULARY, _HIDDEN)
    linear("lm_head", _VOCABULARY, _HIDDEN)
    for number in range(_LAYERS):
        layer = f"model.layers.{number}"
        for norm, size in (("input_layernorm", _HIDDEN), ("post_attention_layernorm", _HIDDEN),
                           ("self_attn.q_norm", _HEAD), ("self_attn.k_norm", _HEAD)):  # fmt: skip
            tensors[f"{layer}.{norm}.weight"] = np.ones(size, dtype=np.float32)
        linear(f"{layer}.self_attn.q_proj", _HEADS * _HEAD, _HIDDEN)
        linear(f"{layer}.self_attn.k_proj", _GROUPS * _HEAD, _HIDDEN)
        linear(f"{layer}.self_attn.v_proj", _GROUPS * _HEAD, _HIDDEN)
        linear(f"{layer}.self_attn.o_proj", _HIDDEN, _HEADS * _HEAD)
        linear(f"{layer}.mlp.gate_proj", _INNER, _HIDDEN)
        linear(f"{layer}.mlp.up_proj", _INNER, _HIDDEN)
        linear(f"{layer}.mlp.down_proj", _HIDDEN, _INNER)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
