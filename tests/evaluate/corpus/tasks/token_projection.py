import torch
import torch.nn as nn

vocabulary = 40
dim = 48
features = 64


class Model(nn.Module):
    def __init__(self, vocabulary, dim, features):
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)
        self.linear = nn.Linear(dim, features)

    def forward(self, tokens):
        return torch.relu(self.linear(self.table(tokens)))


def get_inputs():
    return [torch.randint(0, vocabulary, (6, 19))]


def get_init_inputs():
    return [vocabulary, dim, features]
