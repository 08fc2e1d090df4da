import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8
IN_CHANNELS = 32
OUT_CHANNELS = 64
GROUPS = 8
SIZE = 64


class ConvNormAct(nn.Module):
    """3x3 convolution, group normalisation, SiLU."""

    def __init__(self, in_channels, out_channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, out_channels)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


def get_inputs():
    return [torch.rand([BATCH, IN_CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[IN_CHANNELS, OUT_CHANNELS], {"groups": GROUPS}]
