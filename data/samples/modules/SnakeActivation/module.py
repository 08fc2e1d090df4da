import torch
from torch import nn

BATCH = 16
CHANNELS = 256
LENGTH = 2048


class SnakeActivation(nn.Module):
    """x + sin(alpha x)^2 / alpha, with alpha learnt for each channel."""

    def __init__(self, channels, alpha=1.0, eps=1e-9):
        super().__init__()
        self.eps = eps
        self.alpha = nn.Parameter(torch.ones(1, channels, 1) * alpha)

    def forward(self, x):
        wave = torch.sin(self.alpha * x)
        return x + wave * wave / (self.alpha + self.eps)


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, LENGTH])]


def get_init_inputs():
    return [[], {"channels": CHANNELS, "alpha": 0.9}]
