import torch
from torch import nn

BATCH = 64
TOKENS = 512
DIM = 256


class MaskedMeanPool(nn.Module):
    """The mean of the token vectors that the mask keeps."""

    def forward(self, x, mask):
        weight = mask.unsqueeze(-1).to(x.dtype)
        total = (x * weight).sum(dim=1)
        return total / weight.sum(dim=1).clamp(min=1.0)


def get_inputs():
    return [torch.rand([BATCH, TOKENS, DIM]), torch.rand([BATCH, TOKENS]) > 0.3]


def get_init_inputs():
    return [[], {}]
