import math

import torch
import torch.nn as nn


class Model(nn.Module):
    """A gated recurrent cell unrolled over a few steps; returns every state and the mean reset gate."""

    def __init__(self, in_features: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.from_input = nn.Linear(in_features, 3 * hidden_size)
        self.from_state = nn.Linear(hidden_size, 3 * hidden_size)
        nn.init.normal_(self.from_input.weight, std=1.0 / math.sqrt(in_features))
        nn.init.normal_(self.from_state.weight, std=1.0 / math.sqrt(hidden_size))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        projected = self.from_input(x)
        states = []
        resets = []
        for step in range(x.shape[1]):
            input_reset, input_update, input_candidate = projected[:, step].chunk(3, dim=-1)
            state_reset, state_update, state_candidate = self.from_state(state).chunk(3, dim=-1)
            reset = torch.sigmoid(input_reset + state_reset)
            update = torch.sigmoid(input_update + state_update)
            candidate = torch.tanh(input_candidate + reset * state_candidate)
            state = update * state + (1.0 - update) * candidate
            states.append(state)
            resets.append(reset)
        return torch.stack(states, dim=1), torch.stack(resets, dim=1).mean(dim=1)


batch_size = 128
num_steps = 6
in_features = 192
hidden_size = 256


def get_inputs():
    return [torch.randn(batch_size, num_steps, in_features), torch.randn(batch_size, hidden_size)]


def get_init_inputs():
    return [in_features, hidden_size]
