"""Rows in the style of KernelBook, written here: modules of the kind that repositories hold, and the code that Inductor of
torch 2.5 would give for them, reworked into a class. None is a row of the dataset.
"""

from __future__ import annotations

from typing import Any

_HEAD = """import torch
{imports}import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import grid
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
{helpers}import torch.nn as nn
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
{more}
"""
_HELPERS = "from torch._inductor.runtime import triton_helpers\n"
_LIBDEVICE = "from torch._inductor.runtime.triton_helpers import libdevice\n"
_MATH = "from torch._inductor.runtime.triton_helpers import math as tl_math\n"
_EXTERN = "from torch._inductor.select_algorithm import extern_kernels\n"
_REINTERPRET = "reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor\n"


def _head(imports: str = "", helpers: str = "", more: str = "") -> str:
    return _HEAD.format(imports=imports, helpers=helpers, more=more)


def book_row(
    name: str, python_code: str, triton_code: str, licences: list[str] | None = None, uuid: int = 0
) -> dict[str, Any]:
    """A row with every column of KernelBook."""
    return {
        "entry_point": name,
        "original_triton_code": "# as Inductor printed it\n" + triton_code,
        "python_code": python_code,
        "triton_code": triton_code,
        "repo_name": f"somebody/{name.lower()}",
        "module_name": name,
        "synthetic": False,
        "uuid": uuid,
        "licenses": ["MIT"] if licences is None else licences,
        "stars": 3,
        "sha": "0" * 40,
        "repo_link": f"https://example.org/somebody/{name.lower()}",
    }


# A pointwise chain; the arguments of the class by keyword.
AFFINE = """import torch
import torch.nn as nn


class Affine(nn.Module):

    def __init__(self, scale, shift=0.0):
        super().__init__()
        self.scale = scale
        self.shift = shift

    def forward(self, x):
        return torch.sigmoid(x * self.scale + self.shift)


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[], {'scale': 1.5, 'shift': 0.25}]
"""
AFFINE_NEW = (
    _head()
    + """

@triton.jit
def triton_poi_fused_add_mul_sigmoid_0(in_ptr0, out_ptr0, xnumel, XBLOCK:
    tl.constexpr):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + x0, xmask)
    tmp1 = 1.5
    tmp2 = tmp0 * tmp1
    tmp3 = 0.25
    tmp4 = tmp2 + tmp3
    tmp5 = tl.sigmoid(tmp4)
    tl.store(out_ptr0 + x0, tmp5, xmask)


def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (4, 4, 4, 4), (64, 16, 4, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, 4, 4, 4), (64, 16, 4, 1), torch.float32)
        get_raw_stream(0)
        triton_poi_fused_add_mul_sigmoid_0[grid(256)](arg0_1, buf0, 256,
            XBLOCK=128, num_warps=4, num_stages=1)
        del arg0_1
    return buf0,


class AffineNew(nn.Module):

    def __init__(self, scale, shift=0.0):
        super().__init__()
        self.scale = scale
        self.shift = shift

    def forward(self, input_0):
        arg0_1 = input_0
        output = call([arg0_1])
        return output[0]
"""
)

# A parameter, and triton_helpers.maximum.
BIAS_RELU = """import torch
import torch.nn as nn


class BiasReLU(nn.Module):

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x + self.bias)


def get_inputs():
    return [torch.randn([8, 16])]


def get_init_inputs():
    return [[16], {}]
"""
BIAS_RELU_NEW = (
    _head(helpers=_HELPERS)
    + """

@triton.jit
def triton_poi_fused_add_relu_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK:
    tl.constexpr):
    xnumel = 128
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % 16
    tmp0 = tl.load(in_ptr0 + x2, xmask)
    tmp1 = tl.load(in_ptr1 + x0, xmask, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tmp3 = tl.full([1], 0, tl.int32)
    tmp4 = triton_helpers.maximum(tmp3, tmp2)
    tl.store(out_ptr0 + x2, tmp4, xmask)


def call(args):
    primals_1, primals_2 = args
    args.clear()
    assert_size_stride(primals_1, (16,), (1,))
    assert_size_stride(primals_2, (8, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((8, 16), (16, 1), torch.float32)
        get_raw_stream(0)
        triton_poi_fused_add_relu_0[grid(128)](primals_2, primals_1, buf0,
            128, XBLOCK=128, num_warps=4, num_stages=1)
        del primals_1
        del primals_2
    return buf0,


class BiasReLUNew(nn.Module):

    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, input_0):
        primals_1 = self.bias
        primals_2 = input_0
        output = call([primals_1, primals_2])
        return output[0]
"""
)

# A persistent reduction: one program a row.
ROW_RMS = """import torch
import torch.nn as nn


class RowRMS(nn.Module):

    def __init__(self, eps=1e-05):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


def get_inputs():
    return [torch.randn([32, 64])]


def get_init_inputs():
    return [[], {}]
"""
ROW_RMS_NEW = (
    _head(helpers=_LIBDEVICE)
    + """

@triton.jit
def triton_per_fused_add_mean_mul_pow_rsqrt_0(in_ptr0, out_ptr1, xnumel,
    rnumel, XBLOCK: tl.constexpr):
    xnumel = 32
    RBLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    rindex = tl.arange(0, RBLOCK)[None, :]
    tl.full([XBLOCK, RBLOCK], True, tl.int1)
    r1 = rindex
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (r1 + 64 * x0), xmask, other=0.0)
    tmp1 = tmp0 * tmp0
    tmp2 = tl.broadcast_to(tmp1, [XBLOCK, RBLOCK])
    tmp4 = tl.where(xmask, tmp2, 0)
    tmp5 = tl.sum(tmp4, 1)[:, None]
    tmp6 = 64.0
    tmp7 = tmp5 / tmp6
    tmp8 = 1e-05
    tmp9 = tmp7 + tmp8
    tmp10 = libdevice.rsqrt(tmp9)
    tmp11 = tmp0 * tmp10
    tl.store(out_ptr1 + (r1 + 64 * x0), tmp11, xmask)


def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (32, 64), (64, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf1 = empty_strided_cuda((32, 64), (64, 1), torch.float32)
        get_raw_stream(0)
        triton_per_fused_add_mean_mul_pow_rsqrt_0[grid(32)](arg0_1, buf1,
            32, 64, XBLOCK=8, num_warps=4, num_stages=1)
        del arg0_1
    return buf1,


class RowRMSNew(nn.Module):

    def __init__(self, eps=1e-05):
        super().__init__()
        self.eps = eps

    def forward(self, input_0):
        arg0_1 = input_0
        output = call([arg0_1])
        return output[0]
"""
)

# A reduction of everything: one program, promote_to_tensor, in place.
MEAN_ABS = """import torch
import torch.nn as nn


class MeanAbs(nn.Module):

    def forward(self, x, y):
        return torch.mean(torch.abs(x - y))


def get_inputs():
    return [torch.rand([4, 4, 4, 4]), torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[], {}]
"""
MEAN_ABS_NEW = (
    _head(helpers=_HELPERS + _MATH)
    + """

@triton.jit
def triton_per_fused_abs_mean_sub_0(in_out_ptr0, in_ptr0, in_ptr1, xnumel,
    rnumel):
    XBLOCK: tl.constexpr = 1
    RBLOCK: tl.constexpr = 256
    xoffset = tl.program_id(0) * XBLOCK
    tl.full([1], xoffset, tl.int32)
    tl.full([RBLOCK], True, tl.int1)
    rindex = tl.arange(0, RBLOCK)[:]
    tl.full([RBLOCK], True, tl.int1)
    r0 = rindex
    tmp0 = tl.load(in_ptr0 + r0, None)
    tmp1 = tl.load(in_ptr1 + r0, None)
    tmp2 = tmp0 - tmp1
    tmp3 = tl_math.abs(tmp2)
    tmp4 = tl.broadcast_to(tmp3, [RBLOCK])
    tmp6 = triton_helpers.promote_to_tensor(tl.sum(tmp4, 0))
    tmp7 = 256.0
    tmp8 = tmp6 / tmp7
    tl.debug_barrier()
    tl.store(in_out_ptr0 + tl.full([1], 0, tl.int32), tmp8, None)


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (4, 4, 4, 4), (64, 16, 4, 1))
    assert_size_stride(arg1_1, (4, 4, 4, 4), (64, 16, 4, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((), (), torch.float32)
        buf1 = buf0
        del buf0
        get_raw_stream(0)
        triton_per_fused_abs_mean_sub_0[grid(1)](buf1, arg0_1, arg1_1, 1,
            256, num_warps=2, num_stages=1)
        del arg0_1
        del arg1_1
    return buf1,


class MeanAbsNew(nn.Module):

    def forward(self, input_0, input_1):
        arg0_1 = input_0
        arg1_1 = input_1
        output = call([arg0_1, arg1_1])
        return output[0]
"""
)

# A product by the library, the rest in Triton.
LINEAR_TANH = """import torch
import torch.nn as nn


class LinearTanh(nn.Module):

    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, x):
        return torch.tanh(self.fc(x))


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[], {'n_in': 4, 'n_out': 4}]
"""
LINEAR_TANH_NEW = (
    _head(imports=_EXTERN, helpers=_LIBDEVICE, more=_REINTERPRET)
    + """

@triton.jit
def triton_poi_fused_tanh_0(in_out_ptr0, in_ptr0, xnumel, XBLOCK: tl.constexpr
    ):
    xnumel = 256
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % 4
    tmp0 = tl.load(in_out_ptr0 + x2, xmask)
    tmp1 = tl.load(in_ptr0 + x0, xmask, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tmp3 = libdevice.tanh(tmp2)
    tl.store(in_out_ptr0 + x2, tmp3, xmask)


def call(args):
    primals_1, primals_2, primals_3 = args
    args.clear()
    assert_size_stride(primals_1, (4, 4), (4, 1))
    assert_size_stride(primals_2, (4,), (1,))
    assert_size_stride(primals_3, (4, 4, 4, 4), (64, 16, 4, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((64, 4), (4, 1), torch.float32)
        extern_kernels.mm(reinterpret_tensor(primals_3, (64, 4), (4, 1), 0),
            reinterpret_tensor(primals_1, (4, 4), (1, 4), 0), out=buf0)
        del primals_1
        buf1 = reinterpret_tensor(buf0, (4, 4, 4, 4), (64, 16, 4, 1), 0)
        del buf0
        get_raw_stream(0)
        triton_poi_fused_tanh_0[grid(256)](buf1, primals_2, 256, XBLOCK=256,
            num_warps=4, num_stages=1)
        del primals_2
    return buf1, reinterpret_tensor(primals_3, (64, 4), (4, 1), 0), buf1


class LinearTanhNew(nn.Module):

    def __init__(self, n_in, n_out):
        super().__init__()
        self.fc = nn.Linear(n_in, n_out)

    def forward(self, input_0):
        primals_1 = self.fc.weight
        primals_2 = self.fc.bias
        primals_3 = input_0
        output = call([primals_1, primals_2, primals_3])
        return output[0]
"""
)

# A product by a kernel of its own, over a grid of two dimensions.
SCORES = """import torch
import torch.nn as nn


class Scores(nn.Module):

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, q, k):
        return q @ k.t() / self.temperature


def get_inputs():
    return [torch.randn([32, 16]), torch.randn([48, 16])]


def get_init_inputs():
    return [[4.0], {}]
"""
SCORES_NEW = (
    _head()
    + """

@triton.jit
def triton_tem_fused_div_mm_t_0(in_ptr0, in_ptr1, out_ptr0, ynumel, xnumel,
    YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    ynumel = 32
    xnumel = 48
    yindex = tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    rindex = tl.arange(0, 16)
    tmp0 = tl.load(in_ptr0 + (rindex[None, :] + 16 * yindex), yindex < ynumel)
    tmp1 = tl.load(in_ptr1 + (rindex[:, None] + 16 * xindex), xindex < xnumel)
    tmp2 = tl.dot(tmp0, tmp1, input_precision='ieee')
    tmp3 = 0.25
    tmp4 = tmp2 * tmp3
    tl.store(out_ptr0 + (xindex + 48 * yindex), tmp4, (yindex < ynumel) & (
        xindex < xnumel))


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (32, 16), (16, 1))
    assert_size_stride(arg1_1, (48, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((32, 48), (48, 1), torch.float32)
        get_raw_stream(0)
        triton_tem_fused_div_mm_t_0[grid(32, 48)](arg0_1, arg1_1, buf0, 32,
            48, XBLOCK=16, YBLOCK=32, num_warps=2, num_stages=1)
        del arg0_1
        del arg1_1
    return buf0,


class ScoresNew(nn.Module):

    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, input_0, input_1):
        arg0_1 = input_0
        arg1_1 = input_1
        output = call([arg0_1, arg1_1])
        return output[0]
"""
)

# The library does all of it: Inductor had nothing to fuse, so there is no kernel.
PRODUCT = """import torch
import torch.nn as nn


class Product(nn.Module):

    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.rand([4, 8, 8]), torch.rand([4, 8, 8])]


def get_init_inputs():
    return [[], {}]
"""
PRODUCT_NEW = """import torch
from torch._inductor.select_algorithm import extern_kernels
import torch.nn as nn
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda


def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (4, 8, 8), (64, 8, 1))
    assert_size_stride(arg1_1, (4, 8, 8), (64, 8, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, 8, 8), (64, 8, 1), torch.float32)
        extern_kernels.bmm(arg0_1, arg1_1, out=buf0)
        del arg0_1
        del arg1_1
    return buf0,


class ProductNew(nn.Module):

    def forward(self, input_0, input_1):
        arg0_1 = input_0
        arg1_1 = input_1
        output = call([arg0_1, arg1_1])
        return output[0]
"""

# A convolution by the library, the rest in two kernels.
CONV = """import torch
import torch.nn as nn
import torch.nn.functional as F


class ConvPool(nn.Module):

    def __init__(self, in_channels, out_channels):
        super(ConvPool, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)

    def forward(self, x):
        return F.avg_pool2d(F.leaky_relu(self.conv(x), 0.2), 2)


def get_inputs():
    return [torch.rand([2, 3, 8, 8])]


def get_init_inputs():
    return [[], {'in_channels': 3, 'out_channels': 4}]
"""
CONV_NEW = (
    _head(imports=_EXTERN)
    + """

@triton.jit
def triton_poi_fused_convolution_leaky_relu_0(in_out_ptr0, in_ptr0, xnumel,
    XBLOCK: tl.constexpr):
    xnumel = 512
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x3 = xindex
    x1 = xindex // 64 % 4
    tmp0 = tl.load(in_out_ptr0 + x3, xmask)
    tmp1 = tl.load(in_ptr0 + x1, xmask, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tmp3 = 0.0
    tmp4 = tmp2 > tmp3
    tmp5 = 0.2
    tmp6 = tmp2 * tmp5
    tmp7 = tl.where(tmp4, tmp2, tmp6)
    tl.store(in_out_ptr0 + x3, tmp7, xmask)


@triton.jit
def triton_poi_fused_avg_pool2d_1(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.
    constexpr):
    xnumel = 128
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex % 4
    x1 = xindex // 4
    x2 = xindex
    tmp0 = tl.load(in_ptr0 + (2 * x0 + 16 * x1), xmask, eviction_policy=
        'evict_last')
    tmp1 = tl.load(in_ptr0 + (1 + 2 * x0 + 16 * x1), xmask, eviction_policy
        ='evict_last')
    tmp3 = tl.load(in_ptr0 + (8 + 2 * x0 + 16 * x1), xmask, eviction_policy
        ='evict_last')
    tmp5 = tl.load(in_ptr0 + (9 + 2 * x0 + 16 * x1), xmask, eviction_policy
        ='evict_last')
    tmp2 = tmp1 + tmp0
    tmp4 = tmp3 + tmp2
    tmp6 = tmp5 + tmp4
    tmp7 = 0.25
    tmp8 = tmp6 * tmp7
    tl.store(out_ptr0 + x2, tmp8, xmask)


def call(args):
    primals_1, primals_2, primals_3 = args
    args.clear()
    assert_size_stride(primals_1, (4, 3, 3, 3), (27, 9, 3, 1))
    assert_size_stride(primals_2, (4,), (1,))
    assert_size_stride(primals_3, (2, 3, 8, 8), (192, 64, 8, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = extern_kernels.convolution(primals_3, primals_1, stride=(1,
            1), padding=(1, 1), dilation=(1, 1), transposed=False,
            output_padding=(0, 0), groups=1, bias=None)
        assert_size_stride(buf0, (2, 4, 8, 8), (256, 64, 8, 1))
        buf1 = buf0
        del buf0
        get_raw_stream(0)
        triton_poi_fused_convolution_leaky_relu_0[grid(512)](buf1,
            primals_2, 512, XBLOCK=256, num_warps=4, num_stages=1)
        del primals_2
        buf2 = empty_strided_cuda((2, 4, 4, 4), (64, 16, 4, 1), torch.float32)
        triton_poi_fused_avg_pool2d_1[grid(128)](buf1, buf2, 128, XBLOCK=
            128, num_warps=4, num_stages=1)
    return buf2, primals_1, primals_3, buf1


class ConvPoolNew(nn.Module):

    def __init__(self, in_channels, out_channels):
        super(ConvPoolNew, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)

    def forward(self, input_0):
        primals_1 = self.conv.weight
        primals_2 = self.conv.bias
        primals_3 = input_0
        output = call([primals_1, primals_2, primals_3])
        return output[0]
"""
)

_SHIFT_IS_LOST = AFFINE_NEW.replace("tmp2 + tmp3", "tmp2")
_TORCH_DOES_IT = AFFINE_NEW.replace("output = call([arg0_1])", "output = call").replace(
    "return output[0]", "return torch.sigmoid(input_0 * self.scale + self.shift)"
)
_ANOTHER_TORCH = AFFINE_NEW.replace("import grid", "import grid, no_such_grid")
_NO_SUCH_PACKAGE = AFFINE.replace("import torch\n", "import torch\nimport no_such_package\n", 1)


def _large(code: str) -> str:
    """The same task with 32 in place of 4: too much for the interpreter."""
    for old, new in (
        ("4, 4, 4, 4", "32, 32, 32, 32"),
        ("(64, 16, 4, 1)", "(32768, 1024, 32, 1)"),
        ("256", "1048576"),
    ):
        code = code.replace(old, new)
    return code


ROWS = [
    book_row("Affine", AFFINE, AFFINE_NEW, ["MIT"], 1),
    book_row("BiasReLU", BIAS_RELU, BIAS_RELU_NEW, ["Apache-2.0"], 2),
    book_row("RowRMS", ROW_RMS, ROW_RMS_NEW, ["BSD-3-Clause"], 3),
    book_row("MeanAbs", MEAN_ABS, MEAN_ABS_NEW, ["MIT", "GPL-3.0"], 4),
    book_row("LinearTanh", LINEAR_TANH, LINEAR_TANH_NEW, ["MIT"], 5),
    book_row("Scores", SCORES, SCORES_NEW, [], 6),
    book_row("ConvPool", CONV, CONV_NEW, ["MIT"], 7),
    book_row("Product", PRODUCT, PRODUCT_NEW, ["MIT"], 8),
    book_row("Affine", AFFINE, _SHIFT_IS_LOST, ["MIT"], 9),
    book_row("Affine", AFFINE, _TORCH_DOES_IT, ["MIT"], 10),
    book_row("RowRMS", ROW_RMS, ROW_RMS_NEW[: len(ROW_RMS_NEW) // 2], ["MIT"], 11),
    book_row("Affine", AFFINE, _ANOTHER_TORCH, ["MIT"], 12),
    book_row("Affine", _NO_SUCH_PACKAGE, AFFINE_NEW, ["MIT"], 13),
    book_row("Affine", _large(AFFINE), _large(AFFINE_NEW), ["MIT"], 14),
]
EXPECTED: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("1", "2", "3", "4", "5", "6", "7"), ("correct", "PASSED")),
    "8": ("incorrect", "FORMAT_ERROR"),
    "9": ("incorrect", "INCORRECT_NUMERICAL"),
    "10": ("hack", "HACK"),
    "11": ("incorrect", "PARSE_ERROR"),
    **dict.fromkeys(("12", "13", "14"), ("inconclusive", None)),
}
"""By uuid, what is to be said of the row on a machine without a GPU, and the evaluator's status. Why a row cannot be judged may
change with the evaluator."""
