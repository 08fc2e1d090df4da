import torch
import torch.nn as nn

rows = 64


class Model(nn.Module):
    """The energy of each row, under gains that fall by four decades."""

    def __init__(self, rows):
        super().__init__()
        self.gain = nn.Parameter(torch.logspace(0, -4, rows))

    def forward(self, x):
        return torch.mean((x * self.gain[:, None]) ** 2, dim=1)


def get_inputs():
    return [torch.randn(rows, 90)]


def get_init_inputs():
    return [rows]
