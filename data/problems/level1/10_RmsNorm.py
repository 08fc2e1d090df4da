import torch
import torch.nn as nn


class Model(nn.Module):
    """Divides each row by its root mean square and multiplies by a learned weight per feature."""

    def __init__(self, num_features: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(num_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


num_rows = 4096
num_features = 1024
eps = 1e-6


def get_inputs():
    # Rows of different size: unit rows would come out almost as they went in.
    row_scale = 0.25 + 3.0 * torch.rand(num_rows, 1)
    return [row_scale * torch.randn(num_rows, num_features)]


def get_init_inputs():
    return [num_features, eps]
