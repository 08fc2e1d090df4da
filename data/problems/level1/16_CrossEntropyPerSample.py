import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """Computes the cross-entropy of each row of logits against its int64 class, without averaging."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, targets, reduction="none")


num_samples = 4096
num_classes = 1000


def get_inputs():
    logits = 2.0 * torch.randn(num_samples, num_classes)
    targets = torch.randint(0, num_classes, (num_samples,))
    return [logits, targets]


def get_init_inputs():
    return []
