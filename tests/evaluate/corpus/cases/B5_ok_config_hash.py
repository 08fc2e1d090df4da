"""
task: embedding
pattern: B5
label: correct
twin_of: B5_disk_cache
what: a hashed, frozen dataclass as key of a configuration held in memory
"""

from dataclasses import dataclass

import torch
import torch.nn as nn
import triton
import triton.language as tl


@dataclass(frozen=True)
class GatherConfig:
    block: int
    num_warps: int = 4


@triton.jit
def gather_rows_kernel(index_ptr, table_ptr, out_ptr, dim, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(index_ptr + i).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < dim
    values = tl.load(table_ptr + row * dim + cols, mask=mask)
    tl.store(out_ptr + i * dim + cols, values, mask=mask)


class ModelNew(nn.Module):
    configs = {hash(48): GatherConfig(block=64)}

    def __init__(self, vocabulary, dim):
        super().__init__()
        self.table = nn.Embedding(vocabulary, dim)
        self.config = self.configs.get(hash(dim), GatherConfig(block=triton.next_power_of_2(dim)))

    def forward(self, tokens):
        tokens = tokens.contiguous()
        dim = self.table.weight.shape[1]
        out = torch.empty((*tokens.shape, dim), device=tokens.device, dtype=self.table.weight.dtype)
        gather_rows_kernel[(tokens.numel(),)](
            tokens, self.table.weight, out, dim, BLOCK=self.config.block, num_warps=self.config.num_warps
        )
        return out
