"""A small decoder with what current ones are made of: bfloat16, RMSNorm, rotary positions, grouped-query attention with sinks and a
sliding window in every other layer, a mixture of SwiGLU experts."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * y.to(x.dtype)


class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.register_buffer("frequencies", base ** (-torch.arange(0, width, 2).float() / width))

    def forward(self, x):
        angles = torch.arange(x.shape[-2], device=x.device).float()[:, None] * self.frequencies.float()
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads, groups, window):
        super().__init__()
        self.heads, self.groups, self.window = heads, groups, window
        self.size = width // heads
        self.q_proj = nn.Linear(width, heads * self.size, bias=False)
        self.k_proj = nn.Linear(width, groups * self.size, bias=False)
        self.v_proj = nn.Linear(width, groups * self.size, bias=False)
        self.o_proj = nn.Linear(heads * self.size, width, bias=False)
        self.sinks = nn.Parameter(torch.zeros(heads))
        self.rotary = Rotary(self.size)

    def forward(self, x):
        batch, length, _ = x.shape
        q = self.rotary(self.q_proj(x).view(batch, length, self.heads, self.size).transpose(1, 2))
        k = self.rotary(self.k_proj(x).view(batch, length, self.groups, self.size).transpose(1, 2))
        v = self.v_proj(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        distance = torch.arange(length, device=x.device)[:, None] - torch.arange(length, device=x.device)
        hidden = distance < 0
        if self.window is not None:
            hidden = hidden | (distance >= self.window)
        scores = scores.masked_fill(hidden, float("-inf"))
        sinks = self.sinks.view(1, -1, 1, 1).expand(batch, -1, length, 1)
        weights = F.softmax(torch.cat([scores, sinks], dim=-1).float(), dim=-1)[..., :-1].to(x.dtype)
        return self.o_proj((weights @ v).transpose(1, 2).reshape(batch, length, -1))


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x):
        values, places = self.router(x).float().topk(self.chosen, dim=-1)
        shares = torch.zeros(*x.shape[:-1], len(self.experts), device=x.device).scatter(
            -1, places, values.softmax(-1)
        )
        shares = shares.to(x.dtype)
        result = torch.zeros_like(x)
        for at, expert in enumerate(self.experts):
            result = result + shares[..., at : at + 1] * expert(x)
        return result


class Block(nn.Module):
    def __init__(self, width, heads, groups, hidden, experts, chosen, window):
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, groups, window)
        self.mixture = Mixture(width, hidden, experts, chosen)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.mixture(self.norm_2(x))


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, groups, hidden, experts, chosen, window):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, groups, hidden, experts, chosen, window if at % 2 == 0 else None)
            for at in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.to(torch.bfloat16)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def get_inputs():
    return [torch.randint(0, 1024, (2, 64))]


def get_init_inputs():
    return [1024, 256, 4, 8, 2, 512, 4, 2, 16]
