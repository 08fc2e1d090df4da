import torch
import torch.nn as nn

rows = 4096
dim = 1024


class Model(nn.Module):
    """Larger than an interpreter takes it: it is made smaller there."""

    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(rows, dim)]


def get_init_inputs():
    return []
