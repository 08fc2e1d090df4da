import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvBlock(nn.Module):
    """Two 3 x 3 convolutions, each followed by a leaky ReLU; the height and width stay."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
        self.second = nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1)
        for conv in (self.first, self.second):
            nn.init.kaiming_normal_(conv.weight, a=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.leaky_relu(self.first(x), negative_slope=0.1)
        return F.leaky_relu(self.second(x), negative_slope=0.1)


class Model(nn.Module):
    """A two-level U-shaped network: down by pooling, up by nearest neighbour, joined by skip connections."""

    def __init__(self, in_channels: int, base_channels: int, out_channels: int) -> None:
        super().__init__()
        self.down_fine = ConvBlock(in_channels, base_channels)
        self.down_coarse = ConvBlock(base_channels, 2 * base_channels)
        self.bottom = ConvBlock(2 * base_channels, 4 * base_channels)
        self.up_coarse = ConvBlock(6 * base_channels, 2 * base_channels)
        self.up_fine = ConvBlock(3 * base_channels, base_channels)
        self.head = nn.Conv2d(base_channels, out_channels, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.down_fine(x)
        coarse = self.down_coarse(F.avg_pool2d(fine, kernel_size=2))
        bottom = self.bottom(F.avg_pool2d(coarse, kernel_size=2))
        up = F.interpolate(bottom, size=coarse.shape[-2:], mode="nearest")
        up = self.up_coarse(torch.cat([up, coarse], dim=1))
        up = F.interpolate(up, size=fine.shape[-2:], mode="nearest")
        up = self.up_fine(torch.cat([up, fine], dim=1))
        return self.head(up)


batch_size = 4
in_channels = 3
base_channels = 16
out_channels = 5
height = 64
width = 64


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, base_channels, out_channels]
