import torch
from torch import nn

BATCH = 32
CHANNELS = 128
SIZE = 56


class SqueezeExcite(nn.Module):
    """Scale each channel by a gate that is computed from the mean of all channels."""

    def __init__(self, channels, reduction=8):
        super().__init__()
        self.squeeze = nn.Linear(channels, channels // reduction)
        self.excite = nn.Linear(channels // reduction, channels)

    def forward(self, x):
        pooled = x.mean(dim=(2, 3))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(pooled))))
        return x * gate[:, :, None, None]


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[CHANNELS], {"reduction": 8}]
