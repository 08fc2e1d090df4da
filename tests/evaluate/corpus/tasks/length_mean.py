import torch
import torch.nn as nn

rows = 14
dim = 75


class Model(nn.Module):
    """The mean of the first numbers of each row; the lengths given are those of full rows."""

    def forward(self, x, lengths):
        kept = torch.arange(x.shape[1], device=x.device)[None, :] < lengths[:, None]
        return (x * kept).sum(dim=1) / lengths.clamp(min=1)


def get_inputs():
    return [torch.randn(rows, dim), torch.full((rows,), dim)]


def get_init_inputs():
    return []
