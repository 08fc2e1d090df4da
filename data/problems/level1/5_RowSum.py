import torch
import torch.nn as nn


class Model(nn.Module):
    """Sums each row of a matrix and keeps the reduced axis."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=-1, keepdim=True)


num_rows = 4096
num_columns = 1000


def get_inputs():
    return [torch.randn(num_rows, num_columns)]


def get_init_inputs():
    return []
