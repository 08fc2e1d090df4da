import torch
import torch.nn as nn

batch_size = 2048
dim = 4096


class Model(nn.Module):
    """Larger than an interpreter takes it: it is made smaller there."""

    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
