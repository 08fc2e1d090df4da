import torch
from torch import nn

BATCH = 16
TOKENS = 512
DIM = 1152


class ResidualLayerNorm(nn.Module):
    """Layer normalisation of the sum of a branch and its residual."""

    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=eps)

    def forward(self, x, residual):
        return self.norm(x + residual)


def get_inputs():
    return [torch.rand([BATCH, TOKENS, DIM]), torch.rand([BATCH, TOKENS, DIM])]


def get_init_inputs():
    return [[DIM], {"eps": 1e-5}]
