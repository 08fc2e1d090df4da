import torch
from torch import nn

ROWS = 4096
IN_FEATURES = 512
OUT_FEATURES = 512


class GatedLinearUnit(nn.Module):
    """One projection to twice the width; one half gates the other."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.proj = nn.Linear(in_features, 2 * out_features)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, dim=-1)
        return value * torch.sigmoid(gate)


def get_inputs():
    return [torch.rand([ROWS, IN_FEATURES])]


def get_init_inputs():
    return [[], {"in_features": IN_FEATURES, "out_features": OUT_FEATURES}]
