import torch
import torch.nn as nn


class Model(nn.Module):
    """Scales and shifts each channel by learned amounts and clamps the result to a fixed range."""

    def __init__(self, num_channels: int, lowest: float, highest: float) -> None:
        super().__init__()
        self.lowest = lowest
        self.highest = highest
        self.gain = nn.Parameter(torch.randn(num_channels, 1))
        self.shift = nn.Parameter(0.5 * torch.randn(num_channels, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(x * self.gain + self.shift, min=self.lowest, max=self.highest)


batch_size = 16
num_channels = 80
num_positions = 3000
lowest = -1.25
highest = 2.0


def get_inputs():
    return [torch.randn(batch_size, num_channels, num_positions)]


def get_init_inputs():
    return [num_channels, lowest, highest]
