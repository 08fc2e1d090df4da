import torch
import torch.nn as nn

vocabulary = 50
dim = 48


class Model(nn.Module):
    def __init__(self, vocabulary, dim):
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)

    def forward(self, tokens):
        return self.table(tokens)


def get_inputs():
    return [torch.randint(0, vocabulary, (3, 5))]


def get_init_inputs():
    return [vocabulary, dim]
