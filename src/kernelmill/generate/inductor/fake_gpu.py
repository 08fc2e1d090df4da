"""Make Inductor generate code for the fake GPU. It patches torch, so it needs a process of its own.

Nothing is launched or allocated: all tensors on this GPU are fake. Inductor's queries are answered with the
properties of `evaluate.fake_gpu`. Where Inductor would benchmark choices, it gets the one that `prefer` selects.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Iterator
from typing import Any

import sympy
import torch
import triton
from torch._dynamo import device_interface
from torch._functorch._aot_autograd import graph_compile
from torch._inductor import config, ir, select_algorithm, sizevars
from torch._inductor import utils as inductor_utils
from torch._inductor.choices import InductorChoices
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.kernel import conv
from torch._subclasses import fake_tensor
from torch.export import exported_program
from torch.utils._sympy import value_ranges

from kernelmill.evaluate.fake_gpu import driver, streams
from kernelmill.evaluate.fake_gpu.device import ANSWERS, ARCH, PROPERTIES
from kernelmill.generate.inductor import indexing
from kernelmill.generate.inductor.variants import Variant

_MOST_PARTS = 512
_NODE_ALONE = (
    "return_choice" in inspect.signature(select_algorithm.AlgorithmSelectorCache.__call__).parameters
)
"""Torch before 2.12 returns the choice beside the node only on request."""
_real_is_available = torch.cuda.is_available
_all_products = InductorChoices._finalize_template_configs
_all_convolutions = InductorChoices.get_conv_configs


class _Driver(driver.Driver):
    def get_benchmarker(self) -> Any:
        raise RuntimeError("nothing is timed on a pretended GPU")


def install() -> None:
    """Patch torch and Triton. Call it once a process, before any capture."""
    triton.runtime.driver.set_active(_Driver())
    answers: dict[str, Any] = {
        **ANSWERS,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    below: dict[str, Any] = {
        "_cuda_getDevice": lambda: 0,
        "_cuda_setDevice": lambda device: None,
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_exchangeDevice": lambda device: 0,
        "_cuda_maybeExchangeDevice": lambda device: 0,
        "_cuda_getCurrentRawStream": lambda device: 0,
        "_cuda_isInBadFork": lambda: False,
    }
    for name, answer in below.items():
        setattr(torch._C, name, answer)
    fake_tensor.init_gpu_context = lambda device: None
    _pretend_interface()
    _choose_triton()
    torch._C._ensureCUDADeviceGuardSet()
    # The operator's own binding requires a device guard, which a build without CUDA does not have.
    torch.Tensor.__invert__ = torch.Tensor.bitwise_not
    torch.Tensor.__getitem__ = indexing.getitem
    torch.Tensor.copy_ = indexing.copy_
    torch.Tensor.contiguous = indexing.contiguous
    # A list of all operators, made anew for every program, and always the same here.
    exported_program._collect_all_valid_cia_ops = functools.cache(exported_program._collect_all_valid_cia_ops)
    # This pass looks for symbols among the inputs, where dynamo would have put them.
    graph_compile._apply_tensorify_python_scalars = lambda module: None
    # Sizes in stacked layers contain quotients, written as powers of -1, which torch's range analysis does
    # not handle.
    ranges = value_ranges.SymPyValueRangeAnalysis
    ranges.pow_by_natural = staticmethod(_any_for_quotients(ranges.pow_by_natural))
    # Their kernels are not Triton. With them off, attention is products and a softmax.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def _pretend_interface() -> None:
    interface = device_interface.CudaInterface
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "get_compute_capability": lambda device=None: ARCH,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
        "current_device": lambda: 0,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "get_device_properties": lambda device=None: PROPERTIES,
        "synchronize": lambda device=None: None,
        "get_raw_stream": lambda device: 0,
        "set_device": lambda device: None,
    }
    for name, answer in answers.items():
        setattr(interface, name, staticmethod(answer))
    interface.Worker.get_device_properties = staticmethod(lambda device=None: PROPERTIES)
    interface.Worker.current_device = staticmethod(lambda: 0)
    interface.device = streams.Context
    device_interface.get_registered_device_interfaces()
    for name in ("cuda", "cuda:0"):
        device_interface.register_interface_for_device(name, interface)


def _choose_triton() -> None:
    """Configure Inductor to use Triton templates for products and convolutions."""
    config.compile_threads = 1
    config.fx_graph_cache = False
    config.max_autotune = config.max_autotune_gemm = True
    config.max_autotune_gemm_backends = config.max_autotune_conv_backends = "TRITON,ATEN"
    config.autotune_in_subproc = False
    config.shape_padding = False
    config.allow_buffer_reuse = False  # reusing a buffer of another shape makes the code hard to read
    config.prologue_fusion = False  # it writes a constant operand as a vector where a tile is needed
    config.joint_graph_constant_folding = False

    sizevars.SizeVarAllocator.guard_int_seq = _symbols_stay(sizevars.SizeVarAllocator.guard_int_seq)
    InductorChoices.reduction_split_factor = staticmethod(_few(InductorChoices.reduction_split_factor))
    if hasattr(ir.Layout, "_stride_expr_ge_or_false"):  # since torch 2.12
        ir.Layout._stride_expr_ge_or_false = staticmethod(_factored(ir.Layout._stride_expr_ge_or_false))
    inductor_utils.is_big_gpu = lambda *ignored: True
    for passes in (joint_graph, post_grad):
        passes.lazy_init = _without_gpu(passes.lazy_init)


def prefer(variant: Variant) -> None:
    """Generate only the template whose tile is closest to the variant's, without benchmarking.

    Generating a template takes tens of milliseconds, and Inductor has about twenty configurations.
    """

    def unlike(rows: int, columns: int, summed: int) -> float:
        pairs = zip((rows, columns, summed), variant.tile, strict=True)
        return sum(abs(math.log2(one / other)) for one, other in pairs)

    def of_products(self: Any, templates: dict[str, Any], *rest: Any, **more: Any) -> list[Any]:
        ours, libraries = [], []
        for choice in _all_products(self, templates, *rest, **more):
            tile = [choice.params.to_kwargs().get(f"BLOCK_{axis}") for axis in "MNK"]
            if None in tile:
                libraries.append(choice)
            else:
                ours.append((unlike(*tile), choice))
        return [one for _, one in sorted(ours, key=lambda pair: pair[0])[:1]] + libraries

    def of_convolutions(self: Any, *args: Any, **more: Any) -> Any:
        configs = _all_convolutions(self, *args, **more)

        def closest(*args: Any, **more: Any) -> list[Any]:
            found = list(configs(*args, **more))
            return sorted(found, key=lambda one: unlike(*(one.kwargs[f"BLOCK_{axis}"] for axis in "MNK")))[:1]

        return closest

    def choose(self: Any, name: str, choices: list[Any], *rest: Any, **more: Any) -> Any:
        ours = [choice for choice in choices if "triton" in type(choice).__name__.lower()]
        best = (ours or choices)[0]
        node = best.output_node()
        return node if _NODE_ALONE and not more.get("return_choice") else (node, best)

    InductorChoices._finalize_template_configs = of_products
    InductorChoices.get_conv_configs = of_convolutions
    select_algorithm.AlgorithmSelectorCache.__call__ = choose


def _symbols_stay(function: Any) -> Any:
    """Keep channels symbolic.

    A convolution's template needs no constants, though the code that selects it asks for them.
    """

    def called(self: Any, sizes: list[Any]) -> Any:
        if sys._getframe(1).f_code.co_filename != conv.__file__:
            return function(self, sizes)
        return [size if getattr(size, "free_symbols", None) else int(size) for size in sizes]

    return called


def _any_for_quotients(function: Any) -> Any:
    def called(base: Any, exponent: Any) -> Any:
        if value_ranges.ValueRanges.wrap(exponent).lower < 0:
            return value_ranges.ValueRanges.unknown_int()
        return function(base, exponent)

    return called


def _factored(function: Any) -> Any:
    """Compare factored: torch cannot tell that a product is a multiple of an expanded one, and raises."""

    def called(left: Any, right: Any) -> bool:
        if left != 0 and right != 0:
            above, below = sympy.fraction(sympy.cancel(sympy.sympify(left) / right))
            if below == 1 or above == 1:
                return bool(below == 1)
        return bool(function(left, right))

    return called


def _few(function: Any) -> Any:
    """Limit the parts of a split reduction: this many fill a GPU, and more are no faster."""

    def called(*args: Any, **more: Any) -> int:
        return min(int(function(*args, **more)), _MOST_PARTS)

    return called


def _without_gpu(function: Any) -> Any:
    """Trace patterns on the CPU: tracing allocates tensors, which the fake GPU cannot."""

    def called(*ignored: Any, **more: Any) -> Any:
        with no_gpu():
            return function(torch.device("cpu"))

    return called


@contextlib.contextmanager
def no_gpu() -> Iterator[None]:
    """Report the real GPU state for a while: for the problem's own code, and for code that allocates."""
    pretended, torch.cuda.is_available = torch.cuda.is_available, _real_is_available
    try:
        yield
    finally:
        torch.cuda.is_available = pretended
