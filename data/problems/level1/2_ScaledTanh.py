import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes amplitude * tanh(slope * x) for every element."""

    def __init__(self, amplitude: float, slope: float) -> None:
        super().__init__()
        self.amplitude = amplitude
        self.slope = slope

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.amplitude * torch.tanh(self.slope * x)


batch_size = 1024
num_features = 4000
amplitude = 1.75
slope = 0.6


def get_inputs():
    return [torch.randn(batch_size, num_features)]


def get_init_inputs():
    return [amplitude, slope]
