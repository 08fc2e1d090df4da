import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Normalises groups of channels, applies a learned affine map per channel, then SiLU."""

    def __init__(self, num_groups: int, channels_per_group: int) -> None:
        super().__init__()
        num_channels = num_groups * channels_per_group
        self.num_groups = num_groups
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(num_channels))
        self.bias = nn.Parameter(0.5 * torch.randn(num_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(F.group_norm(x, self.num_groups, self.weight, self.bias))


batch_size = 8
num_groups = 8
channels_per_group = 12
height = 48
width = 48


def get_inputs():
    # Every channel has its own offset and size, so that the statistics of a group are not 0 and 1.
    num_channels = num_groups * channels_per_group
    offset = torch.randn(batch_size, num_channels, 1, 1)
    size = 0.5 + 2.0 * torch.rand(batch_size, num_channels, 1, 1)
    return [size * torch.randn(batch_size, num_channels, height, width) + offset]


def get_init_inputs():
    return [num_groups, channels_per_group]
