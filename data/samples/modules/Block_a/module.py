import torch
from torch import nn

BATCH = 8
TOKENS = 256
DIM = 512
HIDDEN = 1024


class Block(nn.Module):
    """A residual block: layer normalisation, then a two-layer perceptron with ReLU."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(self.norm(x))))


def get_inputs():
    return [torch.rand([BATCH, TOKENS, DIM])]


def get_init_inputs():
    return [[], {"dim": DIM, "hidden": HIDDEN}]
