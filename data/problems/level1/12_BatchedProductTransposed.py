import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiplies each matrix of a batch by the transpose of its partner."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.bmm(a, b.transpose(1, 2))


batch_size = 24
num_rows = 320
num_columns = 256
inner_size = 128


def get_inputs():
    a = torch.randn(batch_size, num_rows, inner_size)
    b = torch.randn(batch_size, num_columns, inner_size)
    return [a, b]


def get_init_inputs():
    return []
