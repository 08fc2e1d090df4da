import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 2048
DIM = 512
HIDDEN = 1408


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def get_inputs():
    return [torch.rand([TOKENS, DIM])]


def get_init_inputs():
    return [[], {"dim": DIM, "hidden": HIDDEN}]
