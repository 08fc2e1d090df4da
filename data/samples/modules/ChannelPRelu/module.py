import torch
from torch import nn

BATCH = 16
CHANNELS = 128
SIZE = 64


class ChannelPRelu(nn.Module):
    """A leaky ReLU whose slope is learnt for each channel."""

    def __init__(self, channels, init=0.25):
        super().__init__()
        self.slope = nn.Parameter(torch.full((channels,), init))

    def forward(self, x):
        slope = self.slope.view(1, -1, 1, 1)
        return torch.relu(x) - slope * torch.relu(-x)


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[CHANNELS], {"init": 0.2}]
