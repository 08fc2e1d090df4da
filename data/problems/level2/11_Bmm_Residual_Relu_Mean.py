import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiplies batched matrices, adds a residual, applies ReLU and averages over the rows.

    The ReLU stands before the mean, so the mean cannot be moved in front of the product.
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, a: torch.Tensor, b: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.bmm(a, b) + residual).mean(dim=1)


batch_size = 16
num_rows = 192
inner_size = 96
num_columns = 320


def get_inputs():
    a = torch.randn(batch_size, num_rows, inner_size)
    b = torch.randn(batch_size, inner_size, num_columns)
    residual = 8.0 * torch.randn(batch_size, num_rows, num_columns)
    return [a, b, residual]


def get_init_inputs():
    return []
