import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the Euclidean norm over the channel axis, which is not the contiguous one."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, ord=2, dim=1)


batch_size = 16
num_channels = 128
num_positions = 2048


def get_inputs():
    return [torch.randn(batch_size, num_channels, num_positions)]


def get_init_inputs():
    return []
