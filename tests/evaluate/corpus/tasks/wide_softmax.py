import torch
import torch.nn as nn


class Model(nn.Module):
    """Every output is near 1/4096: far below an absolute tolerance of 1e-2."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(4, 4096)]


def get_init_inputs():
    return []
