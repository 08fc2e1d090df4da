import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8
HEADS = 8
TOKENS = 2048
HEAD_DIM = 64


def feature_map(x):
    return F.elu(x) + 1


class LinearAttention(nn.Module):
    """Attention without a softmax: linear in the number of tokens."""

    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps

    def forward(self, query, key, value):
        query = feature_map(query)
        key = feature_map(key)
        state = torch.matmul(key.transpose(-2, -1), value)
        norm = torch.matmul(query, key.sum(dim=-2).unsqueeze(-1)) + self.eps
        return torch.matmul(query, state) / norm


def get_inputs():
    shape = [BATCH, HEADS, TOKENS, HEAD_DIM]
    return [torch.rand(shape), torch.rand(shape), torch.rand(shape)]


def get_init_inputs():
    return [[], {}]
