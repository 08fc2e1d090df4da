"""
task: batchnorm
family: partial
aims: replay
label: correct
what: it normalises with the batch's own statistics in evaluation too
policy: a mode in which the task is not asked: the grade says so
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def channel_stats_kernel(x_ptr, mean_ptr, variance_ptr, batch, channels, length, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    count = batch * length
    mask = offsets < count
    place = (offsets // length) * channels * length + channel * length + offsets % length
    x = tl.load(x_ptr + place, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / count
    centered = tl.where(mask, x - mean, 0.0)
    tl.store(mean_ptr + channel, mean)
    tl.store(variance_ptr + channel, tl.sum(centered * centered, axis=0) / count)


@triton.jit
def normalise_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    n,
    channels,
    length,
    eps,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    channel = (offsets // length) % channels
    x = tl.load(x_ptr + offsets, mask=mask)
    mean = tl.load(mean_ptr + channel, mask=mask)
    variance = tl.load(variance_ptr + channel, mask=mask, other=1.0)
    weight = tl.load(weight_ptr + channel, mask=mask)
    bias = tl.load(bias_ptr + channel, mask=mask)
    tl.store(out_ptr + offsets, (x - mean) / tl.sqrt(variance + eps) * weight + bias, mask=mask)


def stats_of(x):
    batch, channels, length = x.shape
    mean = torch.empty(channels, device=x.device)
    variance = torch.empty(channels, device=x.device)
    block = triton.next_power_of_2(batch * length)
    channel_stats_kernel[(channels,)](x, mean, variance, batch, channels, length, BLOCK=block)
    return mean, variance


def normalised(x, mean, variance, norm):
    out = torch.empty_like(x)
    n = x.numel()
    normalise_kernel[(triton.cdiv(n, 512),)](
        x, mean, variance, norm.weight, norm.bias, out, n, x.shape[1], x.shape[2], norm.eps, BLOCK=512
    )
    return out


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels)

    def forward(self, x):
        x = x.contiguous()
        mean, variance = stats_of(x)
        with torch.no_grad():
            count = x.numel() // x.shape[1]
            self.norm.running_mean.lerp_(mean, self.norm.momentum)
            self.norm.running_var.lerp_(variance * (count / (count - 1)), self.norm.momentum)
            self.norm.num_batches_tracked.add_(1)
        return normalised(x, mean, variance, self.norm)
