import torch
import torch.nn as nn


class Model(nn.Module):
    """The mask given is all true."""

    def forward(self, x, mask):
        kept = mask.to(x.dtype)
        return (x * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1.0)


def get_inputs():
    return [torch.randn(13, 90), torch.ones(13, 90, dtype=torch.bool)]


def get_init_inputs():
    return []
