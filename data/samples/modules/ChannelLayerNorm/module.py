import torch
from torch import nn

BATCH = 16
CHANNELS = 96
SIZE = 64


class ChannelLayerNorm(nn.Module):
    """Layer normalisation over the channels of an image, at each pixel."""

    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        var = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(var + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[], {"channels": CHANNELS}]
