import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Adds a residual and layer-normalises the sum; returns the normalised rows and the sum itself."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(num_features))
        self.bias = nn.Parameter(0.5 * torch.randn(num_features))

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        normalised = F.layer_norm(total, (self.num_features,), self.weight, self.bias)
        return normalised, total


batch_size = 8
sequence_length = 256
num_features = 768


def get_inputs():
    # Each row has its own offset: without one, a norm that forgets to centre would be nearly right.
    offset = torch.randn(batch_size, sequence_length, 1)
    x = torch.randn(batch_size, sequence_length, num_features) + offset
    residual = torch.randn(batch_size, sequence_length, num_features)
    return [x, residual]


def get_init_inputs():
    return [num_features]
