import torch
import torch.nn as nn

M = 16
K = 1024
N = 16


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(M, K, dtype=torch.float16), torch.rand(K, N, dtype=torch.float16)]


def get_init_inputs():
    return []
