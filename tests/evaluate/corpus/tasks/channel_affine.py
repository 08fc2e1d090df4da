import torch
import torch.nn as nn

channels = 10


class Model(nn.Module):
    """A batch norm with frozen statistics: the same in train() and eval()."""

    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))
        self.register_buffer("running_mean", torch.randn(channels))
        self.register_buffer("running_var", torch.rand(channels) + 0.5)

    def forward(self, x):
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return x * scale[None, :, None] + (self.bias - self.running_mean * scale)[None, :, None]


def get_inputs():
    return [torch.randn(3, channels, 33)]


def get_init_inputs():
    return [channels]
