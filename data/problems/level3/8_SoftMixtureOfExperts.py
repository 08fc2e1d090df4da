import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    """A dense mixture of experts: all experts see every token and are blended by the router's softmax.

    Returns the blended tokens and the routing weights.
    """

    def __init__(self, num_experts: int, token_size: int, hidden_size: int) -> None:
        super().__init__()
        self.router = nn.Linear(token_size, num_experts)
        nn.init.normal_(self.router.weight, std=2.0 / math.sqrt(token_size))
        self.up = nn.Parameter(torch.randn(num_experts, token_size, hidden_size) / math.sqrt(token_size))
        self.up_bias = nn.Parameter(0.3 * torch.randn(num_experts, 1, hidden_size))
        self.down = nn.Parameter(torch.randn(num_experts, hidden_size, token_size) / math.sqrt(hidden_size))

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        routing = torch.softmax(self.router(tokens), dim=-1)
        hidden = F.silu(torch.matmul(tokens.unsqueeze(0), self.up) + self.up_bias)
        answers = torch.bmm(hidden, self.down)
        blended = (answers * routing.t().unsqueeze(-1)).sum(dim=0)
        return blended, routing


num_tokens = 1024
num_experts = 8
token_size = 192
hidden_size = 384


def get_inputs():
    return [torch.randn(num_tokens, token_size)]


def get_init_inputs():
    return [num_experts, token_size, hidden_size]
