import torch
import torch.nn as nn


class Model(nn.Module):
    """Adds a bias, scales each feature by a learned factor and adds the residual."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(num_features))
        self.layer_scale = nn.Parameter(0.5 * torch.randn(num_features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return residual + self.layer_scale * (x + self.bias)


batch_size = 8
sequence_length = 256
num_features = 1000


def get_inputs():
    x = torch.randn(batch_size, sequence_length, num_features)
    residual = torch.randn(batch_size, sequence_length, num_features)
    return [x, residual]


def get_init_inputs():
    return [num_features]
