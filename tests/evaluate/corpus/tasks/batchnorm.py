import torch
import torch.nn as nn

channels = 24


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(16, channels, 10)]


def get_init_inputs():
    return [channels]
