import torch
import torch.nn as nn


class Model(nn.Module):
    """Convolves each channel with its own filter and clamps the result to a fixed range."""

    def __init__(self, num_channels: int, kernel_size: int, lowest: float, highest: float) -> None:
        super().__init__()
        self.lowest = lowest
        self.highest = highest
        self.conv = nn.Conv2d(
            num_channels, num_channels, kernel_size, padding=kernel_size // 2, groups=num_channels
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.conv(x), min=self.lowest, max=self.highest)


batch_size = 8
num_channels = 64
height = 64
width = 64
kernel_size = 3
lowest = -0.6
highest = 0.9


def get_inputs():
    return [torch.randn(batch_size, num_channels, height, width)]


def get_init_inputs():
    return [num_channels, kernel_size, lowest, highest]
