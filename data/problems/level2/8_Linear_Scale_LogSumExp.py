import torch
import torch.nn as nn


class Model(nn.Module):
    """Applies a linear layer, scales the logits and reduces each row by log-sum-exp."""

    def __init__(self, in_features: int, out_features: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(self.linear(x) * self.scale, dim=-1)


batch_size = 2048
in_features = 512
out_features = 384
scale = 5.0


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scale]
