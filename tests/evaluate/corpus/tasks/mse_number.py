import torch
import torch.nn as nn


class Model(nn.Module):
    """The loss as a Python number, as for a log."""

    def forward(self, prediction, target):
        return torch.mean((prediction - target) ** 2).item()


def get_inputs():
    return [torch.randn(50, 70), torch.randn(50, 70)]


def get_init_inputs():
    return []
