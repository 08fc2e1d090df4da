import torch
import torch.nn as nn


class Model(nn.Module):
    """One statistic of the whole input scales every element."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean() + 1e-5)


def get_inputs():
    return [torch.randn(21, 130)]


def get_init_inputs():
    return []
