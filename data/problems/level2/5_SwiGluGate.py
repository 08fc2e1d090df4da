import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Splits a packed bfloat16 projection in two halves and computes silu(gate) * value."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, packed: torch.Tensor) -> torch.Tensor:
        gate, value = packed.chunk(2, dim=-1)
        return F.silu(gate) * value


batch_size = 8
sequence_length = 256
hidden_size = 1376


def get_inputs():
    return [torch.randn(batch_size, sequence_length, 2 * hidden_size).to(torch.bfloat16)]


def get_init_inputs():
    return []
