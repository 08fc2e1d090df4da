import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelfAttention(nn.Module):
    """Multi-head self-attention; positions whose mask is False are not attended to."""

    def __init__(self, num_heads: int, head_size: int) -> None:
        super().__init__()
        width = num_heads * head_size
        self.num_heads = num_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        for layer in (self.query, self.key, self.value, self.output):
            nn.init.normal_(layer.weight, std=1.25 / math.sqrt(width))

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        query, key, value = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=visible[:, None, None, :])
        return self.output(mixed.transpose(1, 2).flatten(start_dim=2))


class Model(nn.Module):
    """A pre-norm transformer encoder block: attention under a padding mask, then a GELU feed-forward."""

    def __init__(self, num_heads: int, head_size: int, feedforward_size: int) -> None:
        super().__init__()
        width = num_heads * head_size
        self.attention_norm = nn.LayerNorm(width)
        self.attention = SelfAttention(num_heads, head_size)
        self.feedforward_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, feedforward_size)
        self.down = nn.Linear(feedforward_size, width)
        for norm in (self.attention_norm, self.feedforward_norm):
            # Away from 1 and 0, so that leaving the affine part out shows.
            nn.init.normal_(norm.weight, mean=1.0, std=0.3)
            nn.init.normal_(norm.bias, std=0.3)

    def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), visible)
        return x + self.down(F.gelu(self.up(self.feedforward_norm(x))))


batch_size = 8
sequence_length = 128
num_heads = 4
head_size = 64
feedforward_size = 1024


def get_inputs():
    x = torch.randn(batch_size, sequence_length, num_heads * head_size)
    # True up to a random length of at least one, False (padding) after it.
    lengths = torch.randint(1, sequence_length + 1, (batch_size, 1))
    visible = torch.arange(sequence_length).unsqueeze(0) < lengths
    return [x, visible]


def get_init_inputs():
    return [num_heads, head_size, feedforward_size]
