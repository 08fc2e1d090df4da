import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """Multi-head causal self-attention, written out: packed projection, scores, mask, softmax, output."""

    def __init__(self, num_heads: int, head_size: int, sequence_length: int) -> None:
        super().__init__()
        width = num_heads * head_size
        self.num_heads = num_heads
        self.head_size = head_size
        self.packed = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        # Unit-size queries and keys, so that the attention is not flat.
        nn.init.normal_(self.packed.weight, std=1.5 / math.sqrt(width))
        nn.init.normal_(self.output.weight, std=1.0 / math.sqrt(width))
        future = torch.ones(sequence_length, sequence_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        packed = self.packed(x).view(batch, length, 3, self.num_heads, self.head_size)
        query, key, value = packed.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_size)
        weights = torch.softmax(scores.masked_fill(self.future, float("-inf")), dim=-1)
        mixed = (weights @ value).transpose(1, 2).reshape(batch, length, width)
        return self.output(mixed)


batch_size = 8
sequence_length = 128
num_heads = 6
head_size = 64


def get_inputs():
    return [torch.randn(batch_size, sequence_length, num_heads * head_size)]


def get_init_inputs():
    return [num_heads, head_size, sequence_length]
