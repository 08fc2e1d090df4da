import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, a, b):
        return F.gelu(a) * b


def get_inputs():
    return [torch.randn(23, 64), torch.randn(23, 64)]


def get_init_inputs():
    return []
