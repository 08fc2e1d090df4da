"""Layers as text: the arguments that a person would have written."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from kernelmill.decompose.record.layers import arguments

LAYERS: dict[str, tuple[nn.Module, dict[str, Any]]] = {
    "no weights by default": (nn.InstanceNorm2d(4), {}),
    "no weights, nor a bias then": (nn.LayerNorm(4, elementwise_affine=False), {"elementwise_affine": False}),
    "no weights in a norm of batches": (nn.BatchNorm2d(4, affine=False), {"affine": False}),
    "weights alone": (nn.LayerNorm(4, bias=False), {"bias": False}),
    "a linear layer without bias": (nn.Linear(4, 3, bias=False), {"bias": False}),
    "all of it": (nn.InstanceNorm2d(4, affine=True), {"affine": True}),
}


@pytest.mark.parametrize(("layer", "options"), LAYERS.values(), ids=LAYERS.keys())
def test_an_option_that_follows_from_another_is_left_out(layer: nn.Module, options: dict[str, Any]) -> None:
    found = arguments(layer)
    assert found is not None
    assert found[1] == options
