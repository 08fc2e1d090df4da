import torch
import torch.nn as nn

rows = 48


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(torch.relu(x), dim=1)


def get_inputs():
    return [torch.randn(rows, 200, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
