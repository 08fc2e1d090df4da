import torch
import torch.nn as nn
import torch.nn.functional as F


class Stage(nn.Module):
    """Convolution, ReLU and a 2 x 2 maximum, which halves the height and the width."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1)
        nn.init.kaiming_normal_(self.conv.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(torch.relu(self.conv(x)), kernel_size=2)


class Model(nn.Module):
    """A small image classifier: two convolution stages, then a linear head over all that is left."""

    def __init__(
        self, in_channels: int, first_channels: int, second_channels: int, image_size: int, num_classes: int
    ) -> None:
        super().__init__()
        self.first = Stage(in_channels, first_channels)
        self.second = Stage(first_channels, second_channels)
        self.head = nn.Linear(second_channels * (image_size // 4) ** 2, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        return self.head(x.flatten(start_dim=1))


batch_size = 32
in_channels = 3
first_channels = 32
second_channels = 64
image_size = 32
num_classes = 20


def get_inputs():
    return [torch.randn(batch_size, in_channels, image_size, image_size)]


def get_init_inputs():
    return [in_channels, first_channels, second_channels, image_size, num_classes]
