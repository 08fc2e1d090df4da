import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Convolves, normalises with stored statistics and applies ReLU.

    The batch norm always uses its stored mean and variance, in training mode too, and never updates them.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2, bias=False)
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(out_channels))
        self.bias = nn.Parameter(0.5 * torch.randn(out_channels))
        self.register_buffer("running_mean", 0.3 * torch.randn(out_channels))
        self.register_buffer("running_var", 0.2 + torch.rand(out_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.conv(x)
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training=False)
        return torch.relu(x)


batch_size = 8
in_channels = 32
out_channels = 48
height = 56
width = 56
kernel_size = 3


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
