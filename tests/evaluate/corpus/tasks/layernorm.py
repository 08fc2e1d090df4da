import torch
import torch.nn as nn

dim = 96


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(14, dim)]


def get_init_inputs():
    return [dim]
