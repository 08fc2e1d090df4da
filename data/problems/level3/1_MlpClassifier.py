import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A three-layer perceptron with GELU that ends in log-probabilities over the classes."""

    def __init__(self, in_features: int, hidden_size: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, hidden_size)
        self.second = nn.Linear(hidden_size, hidden_size)
        self.head = nn.Linear(hidden_size, num_classes)
        for layer in (self.first, self.second, self.head):
            # The default start shrinks the signal layer by layer until only the biases are left.
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.gelu(self.first(x))
        x = F.gelu(self.second(x))
        return F.log_softmax(self.head(x), dim=-1)


batch_size = 512
in_features = 784
hidden_size = 640
num_classes = 100


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, hidden_size, num_classes]
