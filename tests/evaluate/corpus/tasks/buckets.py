import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, ids):
        return torch.remainder(ids * 31 + 7, self.number)


def get_inputs():
    return [torch.randint(0, 5000, (12, 40))]


def get_init_inputs():
    return [13]
