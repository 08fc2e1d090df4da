import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiplies two matrices, both given as inputs."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


num_rows = 1024
inner_size = 768
num_columns = 896


def get_inputs():
    return [torch.randn(num_rows, inner_size), torch.randn(inner_size, num_columns)]


def get_init_inputs():
    return []
