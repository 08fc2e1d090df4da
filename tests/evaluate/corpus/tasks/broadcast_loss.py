import torch
import torch.nn as nn


class Model(nn.Module):
    """(128, 1) against (128,) broadcasts to 128 x 128 before the mean."""

    def forward(self, prediction, weight):
        return torch.mean(prediction * weight)


def get_inputs():
    return [torch.rand(128, 1), torch.rand(128)]


def get_init_inputs():
    return []
