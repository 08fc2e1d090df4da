import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Looks up one row of a learned table for each int64 token id."""

    def __init__(self, vocabulary_size: int, embedding_size: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary_size, embedding_size))

    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(token_ids, self.table)


batch_size = 16
sequence_length = 512
vocabulary_size = 8000
embedding_size = 320


def get_inputs():
    return [torch.randint(0, vocabulary_size, (batch_size, sequence_length))]


def get_init_inputs():
    return [vocabulary_size, embedding_size]
