"""Models of the Hub from the table of sizes: as large as the real ones, without a download, and small ones that run."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kernelmill.problem_sets.offline_models import table

COUNT = """
import json, socket, warnings
warnings.simplefilter("ignore")
def refuse(*_, **__): raise AssertionError("something is downloaded")
socket.socket.connect = refuse
import torch
from kernelmill.problem_sets import offline_models
offline_models.install()
from transformers import AutoConfig, AutoModelForCausalLM
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


@pytest.mark.slow
def test_models_from_the_table_have_the_size_of_the_real_ones_and_small_ones_run() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, "-c", COUNT], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(table()) == set(MILLIONS)
    for name, (parameters, training, shape, vocabulary) in found.items():
        assert parameters / 1e6 == pytest.approx(MILLIONS[name], rel=0.05), name
        assert not training
        assert shape == [2, 16, vocabulary]
