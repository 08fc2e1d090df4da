import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes scaled query-key scores, hides the masked keys and takes the softmax over the keys."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, query: torch.Tensor, key: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        scores = scores.masked_fill(hidden, float("-inf"))
        return torch.softmax(scores, dim=-1)


batch_size = 8
num_heads = 8
num_queries = 160
num_keys = 96
head_size = 64
scale = 0.4


def get_inputs():
    query = torch.randn(batch_size, num_heads, num_queries, head_size)
    key = torch.randn(batch_size, num_heads, num_keys, head_size)
    hidden = torch.rand(batch_size, 1, num_queries, num_keys) < 0.4
    hidden[..., 0] = False  # every query sees at least one key, so that no row is undefined
    return [query, key, hidden]


def get_init_inputs():
    return [scale]
