import torch
import torch.nn as nn


class Model(nn.Module):
    """A dictionary of results."""

    def forward(self, x):
        return {"mean": x.mean(dim=-1), "var": x.var(dim=-1, unbiased=False)}


def get_inputs():
    return [torch.randn(11, 120)]


def get_init_inputs():
    return []
