import torch
import torch.nn as nn


class Model(nn.Module):
    """Rotates the halves of every query and key head by an angle that its int64 position picks."""

    def __init__(self, num_pairs: int, max_positions: int, base: float) -> None:
        super().__init__()
        frequency = base ** (-torch.arange(num_pairs, dtype=torch.float32) / num_pairs)
        angle = torch.outer(torch.arange(max_positions, dtype=torch.float32), frequency)
        self.register_buffer("cosine", torch.cos(angle))
        self.register_buffer("sine", torch.sin(angle))

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cosine = self.cosine[positions].unsqueeze(1)
        sine = self.sine[positions].unsqueeze(1)
        rotated = []
        for x in (query, key):
            first, second = x.chunk(2, dim=-1)
            rotated.append(
                torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)
            )
        return rotated[0], rotated[1]


batch_size = 4
num_heads = 8
sequence_length = 512
num_pairs = 32
max_positions = 4096
base = 10000.0


def get_inputs():
    query = torch.randn(batch_size, num_heads, sequence_length, 2 * num_pairs)
    key = torch.randn(batch_size, num_heads, sequence_length, 2 * num_pairs)
    positions = torch.randint(0, max_positions, (batch_size, sequence_length))
    return [query, key, positions]


def get_init_inputs():
    return [num_pairs, max_positions, base]
