import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Takes the maximum over overlapping square windows of each channel."""

    def __init__(self, window: int, stride: int) -> None:
        super().__init__()
        self.window = window
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, kernel_size=self.window, stride=self.stride, padding=self.window // 2)


batch_size = 8
num_channels = 32
height = 112
width = 112
window = 3
stride = 2


def get_inputs():
    return [torch.randn(batch_size, num_channels, height, width)]


def get_init_inputs():
    return [window, stride]
