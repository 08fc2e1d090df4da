"""Build the two sides of a claim as live modules, and look up the tensors they hold by name.

A side is rebuilt for each trace, because a module may keep what it computed. This executes untrusted code:
use it only in a sandboxed process.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from kernelmill.problems.module_file import init_inputs, inputs, load

ORIGINAL, REFACTORED = "original", "refactored"
_FILLS = {
    "aten::uniform_", "aten::normal_", "aten::fill_", "aten::zero_", "aten::erfinv_", "aten::clamp_",
    "aten::mul_", "aten::add_", "aten::copy_",
}  # fmt: skip


_DRAWS = {"aten::uniform_", "aten::normal_"}
BLOCK = 1_000_003
"""Larger tensors repeat a block of this many numbers: drawing gigabytes per trial would dominate the time."""
SHARED = 16 << 20
"""Parameters with more bytes are shared with the refactored side, not copied, and must not be written."""
IN_BLOCKS = 1 << 20
"""The same limit where weights are in blocks (`_Blocks`); tensors of more bytes are then part of a block."""
_PARTS, _APART = 1024, 272
_blocks: dict[int, torch.Tensor] = {}
"""Keyed by data pointer. Never cleared, because a process proves one claim."""


class Broken(Exception):
    """A side of the claim does not load, build or run; the message is one line."""


def reraise_if_out_of_memory(error: Exception) -> None:
    """Re-raise an out-of-memory error, which says nothing about the claim."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        raise error


class Original:
    """The model as given: any `nn.Module` class, its constructor arguments and its inputs."""

    def __init__(self, code: str, entry_point: str | None) -> None:
        self._module = load(code, ORIGINAL, f"{ORIGINAL}.py")
        self._kind = _model_class(self._module.__dict__, entry_point)
        if not callable(getattr(self._module, "get_inputs", None)):
            raise Broken("it defines no get_inputs()")

    def build(self) -> nn.Module:
        _, args, kwargs = init_inputs(self._module)
        made: nn.Module = self._kind(*args, **kwargs)
        if any(map(nn.parameter.is_lazy, (*made.parameters(), *made.buffers()))):
            given, named = self.inputs()
            made.eval()(*given, **named)  # lazy layers create their weights in the first run
            made.train()
        return made

    def inputs(self) -> tuple[list[Any], dict[str, Any]]:
        return inputs(self._module)

    def arguments(self) -> list[Any]:
        """The constructor's arguments."""
        _, args, kwargs = init_inputs(self._module)
        return [*args, *kwargs.values()]


class Refactored:
    """The parent module on disk, with its children beside it."""

    def __init__(self, files: dict[str, str], main: str) -> None:
        """Write `files` (by relative path) and import `main`, the parent's path."""
        base = Path.cwd() / "claim"
        for name, text in files.items():
            path = base / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        sys.path.insert(0, str((base / main).parent))
        sys.dont_write_bytecode = True
        spec = importlib.util.spec_from_file_location(REFACTORED, base / main)
        assert spec is not None
        assert spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        sys.modules[REFACTORED] = self._module
        spec.loader.exec_module(self._module)

    def build(self) -> nn.Module:
        made: nn.Module = self._module.Model()
        return made


def _model_class(names: dict[str, Any], entry_point: str | None) -> Any:
    """`Model`, else the named class, else the last module class that the source defines."""
    for name in ("Model", entry_point):
        if name and isinstance(kind := names.get(name), type) and issubclass(kind, nn.Module):
            return kind
    own = [
        k
        for k in names.values()
        if isinstance(k, type) and issubclass(k, nn.Module) and k.__module__ == ORIGINAL
    ]
    if not own:
        raise Broken("it defines no class Model")
    return own[-1]


class _FewFills(TorchDispatchMode):  # type: ignore[misc]
    """Draws only the first numbers of large tensors in constructors.

    They show the scale, and all weights are redrawn before they are used.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _DRAWS and args[0].numel() > BLOCK and args[0].is_contiguous():
            func(args[0].detach().view(-1)[:BLOCK], *args[1:], **(kwargs or {}))
            return args[0]
        return func(*args, **(kwargs or {}))


class _Blocks(_FewFills):
    """Places large tensors of one shape in one block of memory, each at a small offset from the last.

    A model of any depth fits in memory, and still no two of its weights hold the same numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[Any, ...], tuple[torch.Tensor, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func._schema.name != "aten::empty":
            return super().__torch_dispatch__(func, types, args, kwargs)
        shape, numbers = tuple(args[0]), math.prod(args[0])
        probe = func([0], *args[1:], **(kwargs or {}))
        if numbers * probe.element_size() <= IN_BLOCKS:
            return func(*args, **(kwargs or {}))
        block, part = self._open.get((shape, probe.dtype), (probe, _PARTS))
        if part == _PARTS:
            block, part = func([numbers + _PARTS * _APART], *args[1:], **(kwargs or {})).zero_(), 0
            _blocks[block.data_ptr()] = block
        self._open[shape, probe.dtype] = block, part + 1
        return block[part * _APART :][:numbers].view(shape)


def block_of(tensor: torch.Tensor) -> torch.Tensor:
    """The block that a tensor is part of, or the tensor itself."""
    return _blocks.get(tensor.untyped_storage().data_ptr(), tensor)


def bytes_in_blocks(tensors: Iterable[torch.Tensor]) -> int:
    """The memory that tensors take when large ones of one shape share a block."""
    small = 0
    large: dict[tuple[Any, ...], int] = {}
    for tensor in tensors:
        size = tensor.numel() * tensor.element_size()
        if size > IN_BLOCKS:
            large[tensor.shape, tensor.dtype] = size + _PARTS * _APART * tensor.element_size()
        else:
            small += size
    return small + sum(large.values())


class _NoFills(TorchDispatchMode):  # type: ignore[misc]
    """Skips initialisation of the refactored side's parameters, and allocates no memory for large ones.

    They are overwritten or replaced afterwards.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, kwargs = func._schema.name, kwargs or {}
        if name in _FILLS and (isinstance(args[0], nn.Parameter) or overlaps(args[0])):
            return args[0]
        if name == "aten::empty":
            one = func([1] * len(args[0]), *args[1:], **kwargs)
            if math.prod(args[0]) * one.element_size() > self._most:
                return one.expand(args[0])
        return func(*args, **kwargs)


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether several elements of the tensor share one memory location, so that it cannot be written."""
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def build_for_numbers(side: Original | Refactored, in_blocks: bool = False) -> nn.Module:
    if isinstance(side, Refactored):
        mode: TorchDispatchMode = _NoFills(IN_BLOCKS if in_blocks else SHARED)
    else:
        mode = _Blocks() if in_blocks else _FewFills()
    with mode:
        return side.build()


# -------------------------------------------------------------------------------------------- tensors by name


def held_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and plain tensor attributes by dotted path; tied tensors under each name."""
    found: dict[str, torch.Tensor] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for kind in (module._parameters, module._buffers, vars(module)):
            for name, value in kind.items():
                if isinstance(value, torch.Tensor):
                    found[prefix + name] = value
                elif kind is not module._parameters and isinstance(value, list | tuple):
                    for index, item in enumerate(value):
                        if isinstance(item, torch.Tensor) and not isinstance(item, nn.Parameter):
                            found[f"{prefix}{name}.{index}"] = item
    return found


def registered(model: nn.Module) -> set[str]:
    """The names of parameters and buffers."""
    return {
        (f"{path}." if path else "") + name
        for path, module in model.named_modules(remove_duplicate=False)
        for kind in (module._parameters, module._buffers)
        for name, value in kind.items()
        if value is not None
    }


def resolve(model: nn.Module, path: str) -> torch.Tensor | None:
    """The tensor at a dotted path; integers index containers."""
    value: Any = model
    for part in path.split("."):
        try:
            value = value[int(part)] if part.isdigit() and not hasattr(value, part) else getattr(value, part)
        except (AttributeError, LookupError, TypeError, ValueError):
            return None
    return value if isinstance(value, torch.Tensor) else None


def put(model: nn.Module, path: str, tensor: torch.Tensor) -> None:
    """Replace a registered parameter with another tensor, without copying."""
    owner, _, name = path.rpartition(".")
    module = model.get_submodule(owner)
    # Not through `_parameters`: a recurrent layer keeps a list of its weights that follows attribute
    # assignment.
    setattr(
        module,
        name,
        tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False),
    )
