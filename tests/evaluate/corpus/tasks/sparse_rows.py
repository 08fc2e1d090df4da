import torch
import torch.nn as nn


class Model(nn.Module):
    """A matrix of compressed rows, whose number of values differs from draw to draw, times a dense one."""

    def forward(self, a, b):
        return torch.relu(torch.sparse.mm(a, b))


def get_inputs():
    dense = torch.randn(37, 29)
    return [torch.where(torch.rand(37, 29) < 0.2, dense, torch.zeros(())).to_sparse_csr(), torch.randn(29, 18)]


def get_init_inputs():
    return []
