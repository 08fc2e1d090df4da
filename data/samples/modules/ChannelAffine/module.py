import torch
from torch import nn

BATCH = 32
CHANNELS = 96
SIZE = 56


class ChannelAffine(nn.Module):
    """A learnable scale and shift for each channel."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x * self.scale.view(1, -1, 1, 1) + self.shift.view(1, -1, 1, 1)


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[], {"channels": CHANNELS}]
