"""Classify operations by kind, and name them."""

from __future__ import annotations

import re

from kernelmill.decompose.record.types import TRAINING, Op, Value, values_of

_TABLE = {
    "layout": """
    view reshape flatten unflatten transpose permute movedim swapaxes t T mT H mH adjoint contiguous squeeze unsqueeze expand expand_as
    view_as reshape_as chunk split tensor_split unbind narrow select to type type_as float half bfloat16 double int long bool clone
    detach real imag view_as_real view_as_complex Flatten Unflatten Identity dropout Dropout Dropout1d Dropout2d Dropout3d
    alpha_dropout feature_dropout feature_alpha_dropout AlphaDropout FeatureAlphaDropout requires_grad_ broadcast_to broadcast_tensors
    swapdims ravel positive alias atleast_1d atleast_2d atleast_3d
    arange zeros ones full empty eye tensor as_tensor scalar_tensor linspace zeros_like ones_like full_like empty_like new_zeros
    new_ones new_full new_empty new_tensor tril_indices triu_indices meshgrid rand randn randint randperm
""",
    "heavy": """
    Linear linear Bilinear bilinear LazyLinear matmul __matmul__ __rmatmul__ mm bmm mv dot addmm baddbmm addbmm addmv einsum tensordot
    inner outer chain_matmul multi_dot scaled_dot_product_attention lstm gru rnn_tanh rnn_relu LSTM GRU RNN LSTMCell GRUCell RNNCell
    lstm_cell gru_cell Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d conv1d conv2d conv3d conv_transpose1d
    conv_transpose2d conv_transpose3d cdist unfold fold Fold Unfold
""",
    "activation": """
    relu ReLU relu6 ReLU6 gelu GELU silu SiLU sigmoid Sigmoid tanh Tanh leaky_relu LeakyReLU elu ELU selu SELU celu CELU mish Mish
    hardswish Hardswish hardsigmoid Hardsigmoid hardtanh Hardtanh softplus Softplus softsign Softsign tanhshrink Tanhshrink prelu PReLU
    glu GLU logsigmoid LogSigmoid hardshrink Hardshrink softshrink Softshrink threshold Threshold rrelu RReLU
""",
    "pointwise": """
    add sub mul div true_divide floor_divide remainder pow neg exp log log2 log10 log1p expm1 sqrt rsqrt abs sign clamp clamp_min
    clamp_max clip reciprocal sin cos tan asin acos atan atan2 sinh cosh erf erfc where masked_fill maximum minimum square floor ceil
    round trunc frac eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not addcmul addcdiv
    lerp rsub __rsub__ __rtruediv__ __rdiv__ __rpow__ __radd__ __rmul__ __pow__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __and__ __or__
    __xor__ __invert__ __truediv__ __floordiv__ __mod__ __neg__ isnan isinf nan_to_num rand_like randn_like tril triu copy fill xlogy
    __setitem__ subtract multiply divide float_power heaviside fmod bitwise_xor bitwise_left_shift bitwise_right_shift __lshift__
    __rshift__ __rlshift__ __rrshift__ __rfloordiv__ __rmod__ isfinite asinh acosh atanh arctan2 exp2 logaddexp logaddexp2 hypot erfinv
    logit sinc sgn fmax fmin absolute negative complex polar conj angle
""",
    "norm": """
    BatchNorm1d BatchNorm2d BatchNorm3d LayerNorm GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d RMSNorm LocalResponseNorm
    batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize SyncBatchNorm CrossMapLRN2d
""",
    "softmax": "softmax Softmax log_softmax LogSoftmax softmin Softmin Softmax2d gumbel_softmax",
    "reduction": """
    sum mean max min amax amin argmax argmin prod var std norm logsumexp any all cumsum cumprod median var_mean std_mean count_nonzero
    nansum logcumsumexp cummax cummin vector_norm
""",
}
KINDS = {name: kind for kind, names in _TABLE.items() for name in names.split()}

_NAMES = {
    "__rsub__": "sub", "__rtruediv__": "div", "__rdiv__": "div", "__rpow__": "pow", "__pow__": "pow", "__getitem__": "index",
    "__setitem__": "index_put", "__matmul__": "matmul", "__rmatmul__": "matmul", "__radd__": "add", "__rmul__": "mul",
    "__or__": "bitwise_or", "__and__": "bitwise_and", "__xor__": "bitwise_xor", "__invert__": "bitwise_not", "__mod__": "remainder",
    "true_divide": "div", "__truediv__": "div", "scaled_dot_product_attention": "attention", "__floordiv__": "floor_divide",
    "__rfloordiv__": "floor_divide", "__rmod__": "remainder", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__rlshift__": "bitwise_left_shift", "__rrshift__": "bitwise_right_shift",
    "float": "to_float", "half": "to_half", "double": "to_double", "bfloat16": "to_bfloat16", "int": "to_int", "long": "to_long",
    "bool": "to_bool", "type": "to_type",
}  # fmt: skip

_IN_PLACE = {f"__i{name}__": f"__{name}__" for name in ("pow", "and", "or", "xor", "lshift", "rshift")}
"""In-place operators (`x &= y`) that torch does not name `add_` or similar."""


def short_of(op: Op) -> str:
    """The operation's name without its module, and without the underscore of in-place variants."""
    short = op.short
    if short.startswith("__"):
        return _IN_PLACE.get(short, short)
    return short.rstrip("_") or short


def fusion_role(op: Op) -> str:
    """The kind of an operation.

    One of layout, heavy, activation, pointwise, norm, softmax, reduction, or other (pooling, gathering,
    sorting …).
    """
    short = short_of(op)
    if short == "__getitem__":
        return "other" if _tensor_index(op) else "layout"
    return KINDS.get(short, "other")


def is_idle(op: Op) -> bool:
    """Whether it does nothing in eval mode."""
    named = "dropout" in op.short.lower()
    return named and (op.module is not None or TRAINING in (*op.args, *op.kwargs.values()))


def _tensor_index(op: Op) -> bool:
    return any(isinstance(value, Value) and value.shape is not None for value in values_of(op.args[1]))


def title_of(op: Op) -> str:
    """The name used in file names: `conv2d`, `layer_norm`, `add`."""
    short = short_of(op)
    return _NAMES.get(short) or snake(short).strip("_")


def snake(name: str) -> str:
    """Convert a class name to snake case; torch layer names become one word.

    `LayerNorm` → layernorm, `MultiHeadAttention` → multi_head_attention, `DINOv3ViTLayer` → dinov3_vit_layer.
    A single lower-case letter among capitals is part of an abbreviation (`MoE`, `ViT`, `DINOv3`).
    """
    if name in KINDS:
        return name.lower()
    word = r"(?=[A-Z][a-z](?:[a-z]|$))"
    parts = re.sub(
        rf"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[a-z0-9]{{2}})(?=[A-Z](?!$))|(?<=[A-Z]){word}", "_", name
    )
    return re.sub(r"\W+", "_", parts).lower()
