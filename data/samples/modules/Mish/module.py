import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 128
SIZE = 56


class Mish(nn.Module):
    def forward(self, x):
        return x * torch.tanh(F.softplus(x))


def get_inputs():
    return [torch.rand([BATCH, CHANNELS, SIZE, SIZE])]


def get_init_inputs():
    return [[], {}]
