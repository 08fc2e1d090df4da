import torch
import torch.nn as nn


class Model(nn.Module):
    """Rows as int8 and their scales. bfloat16 numbers often lie halfway between two steps."""

    def forward(self, x):
        scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-10) / 127
        return torch.round(x.float() / scale).to(torch.int8), scale


def get_inputs():
    return [torch.randn(130, 200).bfloat16()]


def get_init_inputs():
    return []
