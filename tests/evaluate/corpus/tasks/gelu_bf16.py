import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


def get_inputs():
    return [torch.randn(21, 90, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
