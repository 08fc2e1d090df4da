import torch
import torch.nn as nn

bins = 24


class Model(nn.Module):
    """The last place at which each number occurs, or -1."""

    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, index):
        places = torch.arange(index.numel(), device=index.device)
        out = torch.full((self.bins,), -1, dtype=torch.int64, device=index.device)
        return out.scatter_reduce(0, index, places, "amax")


def get_inputs():
    return [torch.randint(0, bins, (90,))]


def get_init_inputs():
    return [bins]
