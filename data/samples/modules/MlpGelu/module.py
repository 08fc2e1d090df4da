import torch
from torch import nn

BATCH = 8
TOKENS = 256
DIM = 512
HIDDEN = 2048


class MlpGelu(nn.Module):
    """The two-layer perceptron of a transformer block, with the exact GELU."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def get_inputs():
    return [torch.rand([BATCH, TOKENS, DIM])]


def get_init_inputs():
    return [[], {"dim": DIM, "hidden": HIDDEN}]
