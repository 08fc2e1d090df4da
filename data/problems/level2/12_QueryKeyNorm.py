import torch
import torch.nn as nn


class Model(nn.Module):
    """Divides every query and key head by its root mean square and applies a learned weight to each."""

    def __init__(self, head_size: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.query_weight = nn.Parameter(1.0 + 0.3 * torch.randn(head_size))
        self.key_weight = nn.Parameter(1.0 + 0.3 * torch.randn(head_size))

    def normalise(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + self.eps) * weight

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.normalise(query, self.query_weight), self.normalise(key, self.key_weight)


batch_size = 4
sequence_length = 384
num_query_heads = 12
num_key_heads = 4
head_size = 80
eps = 1e-6


def get_inputs():
    query = 3.0 * torch.randn(batch_size, sequence_length, num_query_heads, head_size)
    key = 0.5 * torch.randn(batch_size, sequence_length, num_key_heads, head_size)
    return [query, key]


def get_init_inputs():
    return [head_size, eps]
