import torch
import torch.nn as nn
import torch.nn.functional as F


class Perceptron(nn.Module):
    """Two linear layers with a tanh-approximated GELU between them."""

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.up = nn.Linear(size, hidden_size)
        self.down = nn.Linear(hidden_size, size)
        nn.init.xavier_normal_(self.up.weight)
        nn.init.xavier_normal_(self.down.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Model(nn.Module):
    """A mixer block: one perceptron across the patches, one across the channels, each with a residual."""

    def __init__(self, num_patches: int, num_channels: int, patch_hidden: int, channel_hidden: int) -> None:
        super().__init__()
        self.patch_norm = nn.LayerNorm(num_channels)
        self.patch_mixer = Perceptron(num_patches, patch_hidden)
        self.channel_norm = nn.LayerNorm(num_channels)
        self.channel_mixer = Perceptron(num_channels, channel_hidden)
        for norm in (self.patch_norm, self.channel_norm):
            # Away from 1 and 0, so that leaving the affine part out shows.
            nn.init.normal_(norm.weight, mean=1.0, std=0.3)
            nn.init.normal_(norm.bias, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.patch_mixer(self.patch_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mixer(self.channel_norm(x))


batch_size = 8
num_patches = 196
num_channels = 256
patch_hidden = 128
channel_hidden = 768


def get_inputs():
    return [torch.randn(batch_size, num_patches, num_channels)]


def get_init_inputs():
    return [num_patches, num_channels, patch_hidden, channel_hidden]
