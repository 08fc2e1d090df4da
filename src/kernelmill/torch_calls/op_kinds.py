"""The kind of work that an ATen operation does. Importing this module does not import torch."""

from __future__ import annotations

import re
from typing import Any, Literal

OpKind = Literal[
    "view",  # the same memory with another shape or strides
    "copy",  # data moved or repeated without computing: cat, pad, clone, a dtype change
    "elementwise",
    "reduction",  # including losses
    "normalization",
    "softmax",
    "matmul",
    "convolution",
    "pooling",
    "attention",
    "recurrent",
    "gather",  # reads or writes at computed indices: embedding, index, scatter, interpolation
    "scan_sort",
    "random",
    "creation",
    "other",
]

# The first matching pattern decides. Names have no namespace and no trailing underscore of in-place
# operations.
_KINDS: tuple[tuple[OpKind, str], ...] = (
    ("attention", r".*(scaled_dot_product|(flash|efficient|flex)_attention|multi_head_attention)|_transformer_enc"),
    ("recurrent", r"(.*_)?(lstm|gru|rnn)(_|$)"),
    ("convolution", r".*(convolution|conv_?(transpose|depthwise|tbc|[123]d))"),
    ("normalization", r".*(layer|batch|group|instance|rms|weight)_norm|renorm$"),
    ("softmax", r".*softmax$"),
    ("pooling", r".*pool"),
    ("matmul", r"(.*_)?(add|b|baddb|addb)?mm($|_)|(add)?mv$|v?dot$|(.*_)?matmul|(.*_)?(bi|tri)?linear$|addr$|einsum$"),
    ("random", r".*dropout|rand|bernoulli$|multinomial$|(.*_)?(normal|uniform)$|poisson$|rrelu"),
    ("scan_sort", r"(log)?cum|(.*_)?sort$|topk$|kthvalue$|_?unique|_?coalesce$|searchsorted$|bucketize$|(nan)?median$|mode$"),
    ("view", r"c?(row|col)_indices$|_?(indices|values|nnz)$|is_coalesced$|(sparse|dense)_dim$"),  # of a sparse tensor
    ("gather", r"_?embedding|_?to_(dense|sparse)|_?(unsafe_)?(masked_)?index|gather$|scatter|take|masked_(select|scatter)$|nonzero|"
               r"_?upsample|grid_sampler|one_hot$|put$|_pack_padded"),
    ("reduction", r"col2im$|(.*_)?(reflection|replication)_pad\dd_backward$"),  # they add up what falls on one place
    ("copy", r"clone$|(.*_)?copy$|contiguous$|cat$|_chunk_cat$|stack$|(.*_)?(constant|reflection|replication)_pad|"
             r"flip$|roll$|rot90$|repeat|tile$|pixel_|channel_shuffle$|im2col$|resize|block_diag$|"
             r"diag_embed$|(as_strided|select|slice|diagonal)_scatter$|pad_sequence$|lift$"),
    ("reduction", r"(nan)?(sum|mean)$|a?(max|min)$|aminmax$|prod$|std|var|(.*_)?norm$|arg(max|min)$|any$|all$|"
                  r"logsumexp$|count_nonzero$|.*_loss|.*_cross_entropy|(.*_)?dist$|_?[cp]dist|trace$|bincount$|histc$"),
    ("creation", r"(new_)?(zeros|ones|empty|full)|arange$|linspace$|logspace$|eye$|scalar_tensor$|lift_fresh|"
                 r"_?sparse_.*tensor|tri[lu]_indices$|fill$|zero$|.*_window$"),
    ("view", r"_unsafe_view$|reshape$|_reshape_alias$|t$|transpose$|(un)?squeeze$|as_strided$|unsafe_(split|chunk)|"
             r"broadcast_tensors$|meshgrid$"),
    ("elementwise", r"floor_divide$|rsub$|glu$|isin|tri[lu]$|log_sigmoid|threshold$|__[a-z]+|.*_?prelu|hardswish$|"
                    r"where$|masked_fill$|polar$|complex$|special_|_add_relu$|quantize_per"),
)  # fmt: skip
_COMPILED = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]
_KIND_CACHE: dict[Any, OpKind] = {}


def kind_of(func: Any) -> OpKind:
    """Return the kind of an operation, as the dispatcher passes it."""
    if func not in _KIND_CACHE:
        _KIND_CACHE[func] = _classify(func)
    return _KIND_CACHE[func]


_UNPRICED = re.compile(r"_?[cp]dist|_?embedding_bag")


def is_priced(func: Any) -> bool:
    """Whether an operation's cost follows from the bytes that it moves, or from torch's count of its FLOPs."""
    name = func._schema.name.partition("::")[2]
    return kind_of(func) != "other" and not _UNPRICED.match(name)


def _classify(func: Any) -> OpKind:
    """Classify by torch's tags where they are reliable, else by name."""
    import torch

    full = func._schema.name.partition("::")[2]
    name, tags = full.rstrip("_"), set(func.tags)
    if func.is_view:
        return "view"
    if full != name and not full.startswith("__"):  # in place: torch may tag only the other form
        other = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
        tags |= set(getattr(other, "tags", ()))
    found = next((kind for kind, pattern in _COMPILED if pattern.match(name)), None)
    # torch also tags operations as pointwise that only move, create or draw numbers.
    if torch.Tag.pointwise in tags and found not in ("copy", "creation", "random"):
        return "elementwise"
    if torch.Tag.nondeterministic_seeded in tags and found not in ("attention", "recurrent"):
        return "random"
    return found or "other"
