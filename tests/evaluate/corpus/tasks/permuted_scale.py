import torch
import torch.nn as nn

rows = 14


class Model(nn.Module):
    """The order given is the identity, as it often is in published inputs."""

    def forward(self, x, order):
        return x[order] * 2.0


def get_inputs():
    return [torch.randn(rows, 60), torch.arange(rows)]


def get_init_inputs():
    return []
