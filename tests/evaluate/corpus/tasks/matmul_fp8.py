import torch
import torch.nn as nn

M = 32
K = 64
N = 32


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a.to(torch.float32), b.to(torch.float32))


def get_inputs():
    return [torch.randn(M, K).to(torch.float8_e4m3fn), torch.randn(K, N).to(torch.float8_e4m3fn)]


def get_init_inputs():
    return []
