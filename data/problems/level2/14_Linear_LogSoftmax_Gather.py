import torch
import torch.nn as nn


class Model(nn.Module):
    """Computes the log-probability that a linear head gives to one int64 token per row."""

    def __init__(self, hidden_size: int, vocabulary_size: int) -> None:
        super().__init__()
        self.head = nn.Linear(hidden_size, vocabulary_size)

    def forward(self, hidden: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        log_probabilities = torch.log_softmax(self.head(hidden), dim=-1)
        return log_probabilities.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


batch_size = 4
sequence_length = 256
hidden_size = 384
vocabulary_size = 2000


def get_inputs():
    hidden = 3.0 * torch.randn(batch_size, sequence_length, hidden_size)
    tokens = torch.randint(0, vocabulary_size, (batch_size, sequence_length))
    return [hidden, tokens]


def get_init_inputs():
    return [hidden_size, vocabulary_size]
