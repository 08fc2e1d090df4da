import torch
import torch.nn.functional as F
from torch import nn

ROWS = 4096
CLASSES = 3000


class TemperatureSoftmax(nn.Module):
    def __init__(self, temperature=1.0):
        super().__init__()
        self.temperature = temperature

    def forward(self, logits):
        return F.softmax(logits / self.temperature, dim=-1)


def get_inputs():
    return [torch.rand([ROWS, CLASSES])]


def get_init_inputs():
    return [[], {"temperature": 0.7}]
