import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Looks up int64 token ids, adds a learned vector per position and layer-normalises the sum."""

    def __init__(self, vocabulary_size: int, sequence_length: int, embedding_size: int) -> None:
        super().__init__()
        self.embedding_size = embedding_size
        self.tokens = nn.Parameter(torch.randn(vocabulary_size, embedding_size))
        self.positions = nn.Parameter(0.5 * torch.randn(sequence_length, embedding_size))
        self.weight = nn.Parameter(1.0 + 0.3 * torch.randn(embedding_size))
        self.bias = nn.Parameter(0.5 * torch.randn(embedding_size))

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        x = F.embedding(token_ids, self.tokens) + self.positions
        return F.layer_norm(x, (self.embedding_size,), self.weight, self.bias)


batch_size = 16
sequence_length = 256
vocabulary_size = 6000
embedding_size = 384


def get_inputs():
    return [torch.randint(0, vocabulary_size, (batch_size, sequence_length))]


def get_init_inputs():
    return [vocabulary_size, sequence_length, embedding_size]
