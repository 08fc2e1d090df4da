import torch
import torch.nn as nn


class GatedUnit(nn.Module):
    def __init__(self, features, bias=True):
        super().__init__()
        self.value = nn.Linear(features, features, bias=bias)
        self.gate = nn.Linear(features, features, bias=bias)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x))


def get_inputs():
    return [torch.rand([4, 4, 16])]


def get_init_inputs():
    return [[], {"features": 16}]
