"""Compilation of a captured graph to the source that Inductor would run for it on a GPU."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._inductor import compile_fx
from torch._inductor.graph import GraphLowering

from kernelmill.generate.inductor import fake_gpu
from kernelmill.generate.inductor.capture import Captured
from kernelmill.generate.inductor.variants import Variant


class _Generated(Exception):
    """Carries the source out of the compiler, which would otherwise go on to compile it."""


def _give_text(self: GraphLowering) -> Any:
    wrapper, _ = self.codegen()
    raise _Generated(wrapper.value if hasattr(wrapper, "value") else str(wrapper))


def generate(captured: Captured, variant: Variant) -> str:
    fake_gpu.prefer(variant)
    graph, inputs, mode = _on_the_gpu(captured)
    context = torch._guards.TracingContext(mode)
    GraphLowering.compile_to_module = _give_text
    with torch.no_grad(), mode, torch._guards.tracing(context):
        try:
            compile_fx.compile_fx(graph, inputs)
        except Exception as error:
            found: BaseException | None = error
            while found is not None and not isinstance(found, _Generated):
                found = found.__cause__ or found.__context__
            if found is None:
                raise
            return str(found.args[0])
    raise RuntimeError("the compiler generated nothing")


def _on_the_gpu(captured: Captured) -> tuple[torch.fx.GraphModule, list[Any], Any]:
    """Return the graph with every tensor on the fake GPU."""
    graph = captured.program.graph_module
    places = [node for node in graph.graph.nodes if node.op == "placeholder"]
    mode = next(
        node.meta["val"].fake_mode for node in places if isinstance(node.meta.get("val"), torch.Tensor)
    )

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")

    with mode:
        for node in list(graph.graph.nodes):
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
            if "val" in node.meta:
                node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
            if str(node.target) == "aten._assert_tensor_metadata.default":
                graph.graph.erase_node(node)
        graph.recompile()
        return graph, [node.meta["val"] for node in places], mode
