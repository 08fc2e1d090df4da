import torch
import torch.nn as nn


class Model(nn.Module):
    """Takes x where the mask is set and a scaled y elsewhere."""

    def __init__(self, other_scale: float) -> None:
        super().__init__()
        self.other_scale = other_scale

    def forward(self, mask: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(mask, x, self.other_scale * y)


batch_size = 512
num_features = 3000
other_scale = -0.4


def get_inputs():
    mask = torch.rand(batch_size, num_features) < 0.5
    return [mask, torch.randn(batch_size, num_features), torch.randn(batch_size, num_features)]


def get_init_inputs():
    return [other_scale]
