"""Problems with models of the Hub: built from the table of sizes without a download, and judged like any other."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from kernelmill.evaluate.evaluator import Evaluator
from kernelmill.evaluate.options import Options, Pair
from kernelmill.evaluate.task import offline_models
from kernelmill.evaluate.verdict import Verdict

ALONE = """
import json, socket, warnings
warnings.simplefilter("ignore")
def refuse(*_, **__): raise AssertionError("something is downloaded")
socket.socket.connect = refuse
import torch
from kernelmill.evaluate.task import offline_models
offline_models.load("full")
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel
"""
COUNT = """
found = {}
for name in offline_models.table():
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_pretrained(name, config=AutoConfig.from_pretrained(name))
    with offline_models.sized("small"), torch.no_grad():
        config = AutoConfig.from_pretrained(name)
        small = AutoModelForCausalLM.from_pretrained(name, config=config)
        logits = small(torch.randint(0, config.vocab_size, (2, 16))).logits
    found[name] = [sum(p.numel() for p in model.parameters()), model.training, list(logits.shape), config.vocab_size]
print(json.dumps(found))
"""
LOAD = """
offline_models.load("small")
def first(seed, draws, kind=AutoModelForCausalLM, **how):
    torch.manual_seed(seed)
    torch.rand(draws)
    before = torch.get_rng_state()
    model = kind.from_pretrained("gpt2", **how)
    assert torch.equal(before, torch.get_rng_state()), "it drew from the generator of others"
    return next(model.parameters())
one = first(1, 0)
assert torch.equal(one, first(1, 7))
assert torch.equal(one, first(1, 0, GPT2LMHeadModel, config=GPT2Config.from_pretrained("gpt2"), device_map=None))
assert not torch.equal(one, first(2, 0))
assert first(1, 0, dtype=torch.float16).dtype == torch.float16
assert first(1, 0, torch_dtype="auto").dtype == torch.float32
for name in offline_models.table():
    config = AutoConfig.from_pretrained(name, num_labels=5)
    again = offline_models.from_plain(json.loads(json.dumps(offline_models.plain(config))))
    assert type(again) is type(config) and again.to_dict() == config.to_dict(), name
assert offline_models.plain({"model_type": "gpt2"}) is None
try:
    AutoConfig.from_pretrained("someone/unknown")
except LookupError as error:
    print(error)
"""
# What the models are known to have, in millions: the language model's head shares the weights of the embedding where it does.
MILLIONS = {
    "gpt2": 124,
    "EleutherAI/gpt-neo-2.7B": 2651,
    "facebook/opt-1.3b": 1316,
    "facebook/bart-large": 254,
    "google/bigbird-roberta-base": 128,
    "google/electra-small-discriminator": 13.6,
    "google/reformer-enwik8": 149,
}


def alone(code: str) -> str:
    """What a process of its own prints last: `transformers` shall not be in this one."""
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", ALONE + code], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.heavy
def test_models_from_the_table_have_the_size_of_the_real_ones_and_small_ones_run() -> None:
    found = json.loads(alone(COUNT))
    assert set(found) == set(offline_models.table()) == set(MILLIONS)
    for name, (parameters, training, shape, vocabulary) in found.items():
        assert parameters / 1e6 == pytest.approx(MILLIONS[name], rel=0.05), name
        assert not training
        assert shape == [2, 16, vocabulary]


@pytest.mark.heavy
def test_a_model_of_one_name_has_the_same_weights_wherever_it_is_loaded_and_its_configuration_crosses() -> (
    None
):
    assert alone(LOAD).startswith("someone/unknown is not among the models")


def test_one_size_of_a_model_becomes_one_small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(offline_models.shrunk(f"name = '{name}'") for name in offline_models.table())
    monkeypatch.setenv(offline_models.VARIABLE, "small")
    for name in offline_models.table():
        changes = offline_models.shrunk(f"name = '{name}'")
        assert changes
        assert len({old for old, _ in changes.values()}) == len({(old, new) for old, new in changes.values()})


# --------------------------------------------------------------------------------------------- judged

LANGUAGE = """import torch
from transformers import AutoConfig, AutoModelForCausalLM

which = "facebook/opt-1.3b"
settings = AutoConfig.from_pretrained(which)
words = 300


class Model(torch.nn.Module):
    def __init__(self, which, settings):
        super().__init__()
        self.lm = AutoModelForCausalLM.from_pretrained(which, config=settings)

    def forward(self, tokens):
        return self.lm(tokens).logits


def get_inputs():
    return [torch.randint(0, settings.vocab_size, (2, words))]


def get_init_inputs():
    return [which, settings]
"""
NORM = """import torch, triton
import triton.language as tl
from transformers import AutoModelForCausalLM


@triton.jit
def norm_kernel(x, w, b, y, n, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, mask=i < n, other=0.0)
    d = tl.where(i < n, v - tl.sum(v, 0) / n, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, 0) / n + eps)
    tl.store(y + row * n + i, d * r * tl.load(w + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)


@triton.jit
def head_kernel(x, w, y, rows, words, n, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, n, BLOCK):
        k = start + tl.arange(0, BLOCK)
        a = tl.load(x + r[:, None] * n + k[None, :], mask=(r[:, None] < rows) & (k[None, :] < n), other=0.0)
        b = tl.load(w + c[None, :] * n + k[:, None], mask=(c[None, :] < words) & (k[:, None] < n), other=0.0)
        sums += tl.dot(a, b, input_precision="ieee")
    tl.store(y + r[:, None] * words + c[None, :], sums, mask=(r[:, None] < rows) & (c[None, :] < words))


class Norm(torch.nn.Module):
    def __init__(self, old):
        super().__init__()
        self.weight, self.bias, self.eps = old.weight, old.bias, old.eps

    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.shape[-1]
        norm_kernel[(x.numel() // n,)](x, self.weight, self.bias, y, n, self.eps, BLOCK=triton.next_power_of_2(n))
        return y


class Head(torch.nn.Module):
    def __init__(self, old):
        super().__init__()
        self.weight = old.weight

    def forward(self, x):
        x = x.contiguous()
        words, n = self.weight.shape
        rows = x.numel() // n
        y = torch.empty(*x.shape[:-1], words, device=x.device)
        head_kernel[(triton.cdiv(rows, 32), triton.cdiv(words, 32))](x, self.weight, y, rows, words, n, BLOCK=32)
        return y


class ModelNew(torch.nn.Module):
    def __init__(self, which, settings):
        super().__init__()
        self.lm = AutoModelForCausalLM.from_pretrained(which, config=settings)
        for layer in self.lm.model.decoder.layers:
            layer.self_attn_layer_norm = Norm(layer.self_attn_layer_norm)
            layer.final_layer_norm = Norm(layer.final_layer_norm)
        self.lm.model.decoder.final_layer_norm = Norm(self.lm.model.decoder.final_layer_norm)
        self.lm.lm_head = Head(self.lm.lm_head)

    def forward(self, tokens):
        return self.lm(tokens).logits
"""
ENCODER = """import torch
from transformers import AutoModel


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("google/electra-small-discriminator")

    def forward(self, tokens):
        return self.encoder(tokens).last_hidden_state


def get_inputs():
    return [torch.randint(0, 61, (2, 24))]


def get_init_inputs():
    return []
"""
GELU = """import torch, triton
import triton.language as tl
from transformers import AutoModel


@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)), mask=i < n)


class Gelu(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, n = torch.empty_like(x), x.numel()
        gelu_kernel[(triton.cdiv(n, 512),)](x, y, n, BLOCK=512)
        return y


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = AutoModel.from_pretrained("google/electra-small-discriminator")
        for layer in self.encoder.encoder.layer:
            layer.intermediate.intermediate_act_fn = Gelu()

    def forward(self, tokens):
        return self.encoder(tokens).last_hidden_state
"""
OWN_SIZE = GELU.replace("torch.empty_like(x), x", "torch.empty(*x.shape[:-1], 1024, device=x.device), x")
WITH_AN_EXTRA = GELU.replace(
    "        for layer", '        self.register_buffer("one_half", torch.full((1,), 0.5))\n        for layer'
)
PLAIN = """import sys, torch

assert "transformers" not in sys.modules


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loaded = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.Dropout(0.5)).eval()

    def forward(self, x):
        return torch.tanh(self.loaded(x))


def get_inputs():
    return [torch.randn(8, 24)]


def get_init_inputs():
    return []
"""
PLAIN_TANH = """import torch, triton
import triton.language as tl


@triton.jit
def tanh_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, 2 / (1 + tl.exp(-2 * v)) - 1, mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.loaded = torch.nn.Sequential(torch.nn.Linear(24, 24), torch.nn.Dropout(0.5)).eval()

    def forward(self, x):
        x = self.loaded(x)
        y = torch.empty_like(x)
        tanh_kernel[(1,)](x, y, x.numel(), BLOCK=256)
        return y
"""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(Options(device="cpu", targets=("sm_90",)), workers=2) as made:
        yield made


def judged(evaluator: Evaluator, *pairs: tuple[str, str]) -> list[Verdict]:
    async def all_of_them() -> list[Verdict]:
        return await asyncio.gather(*(evaluator.evaluate(Pair("", *pair)) for pair in pairs))

    return asyncio.run(all_of_them())


@pytest.mark.heavy
def test_a_part_that_is_built_in_eval_mode_stays_so_and_transformers_is_not_there_for_who_does_not_use_it(
    evaluator: Evaluator,
) -> None:
    (found,) = judged(evaluator, (PLAIN, PLAIN_TANH))
    assert (found.verdict, found.error) == ("correct", "")
    assert found.grade.deterministic
    assert "random_weights" not in found.task


@pytest.mark.slow
@pytest.mark.heavy
def test_candidates_for_models_of_the_hub_are_judged_right_and_wrong(evaluator: Evaluator) -> None:
    pytest.importorskip("transformers")
    norm, few, gelu, off, extra = judged(
        evaluator,
        (LANGUAGE, NORM),
        (LANGUAGE, NORM.replace("/ n + eps", "/ (n - 1) + eps")),
        (ENCODER, GELU),
        (ENCODER, GELU.replace("0.7071067811865476", "0.75")),
        (ENCODER, WITH_AN_EXTRA),
    )
    for right in (norm, gelu, extra):
        assert (right.verdict, right.error) == ("correct", "")
        assert right.compile["targets"]["sm_90"]["ok"]
    for wrong in (few, off):
        assert (wrong.verdict, wrong.status) == ("incorrect", "INCORRECT_NUMERICAL")
    assert norm.task["random_weights"] == ["facebook/opt-1.3b"]
    assert norm.task["shrunk"]["facebook/opt-1.3b.hidden_size"] == [2048, 32]
    assert norm.grade.drop_in == gelu.grade.drop_in == "strict"
    assert extra.grade.drop_in == "seed_only"


@pytest.mark.slow
@pytest.mark.heavy
def test_a_candidate_made_for_the_real_models_size_is_not_refused_for_that(evaluator: Evaluator) -> None:
    pytest.importorskip("transformers")
    own, wrong = judged(
        evaluator, (ENCODER, OWN_SIZE), (ENCODER, OWN_SIZE.replace("0.7071067811865476", "0.75"))
    )
    assert (own.verdict, own.status) == ("inconclusive", "UNSUPPORTED")
    assert "made for its own sizes" in own.error
    assert wrong.verdict == "incorrect"


@pytest.mark.heavy
def test_a_reference_that_names_an_unknown_model_cannot_be_used_and_one_line_says_why(
    evaluator: Evaluator,
) -> None:
    pytest.importorskip("transformers")
    (found,) = judged(evaluator, (LANGUAGE.replace("facebook/opt-1.3b", "someone/unknown"), NORM))
    assert found.status == "UNSUPPORTED"
    assert found.error.startswith("the reference cannot be used: ")
    assert "someone/unknown is not among the models" in found.error
    assert "\n" not in found.error
