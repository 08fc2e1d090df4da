"""Recorders of the operations in a run: the FLOPs of one, and calls that count as one operation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from kernelmill.torch_calls.tensors import tensors_in

SEQUENCES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""The recurrent functions, which torch would split into thousands of operations."""


_OWN = frozenset({"aten", "prims", "prim"})


def is_own(func: Any) -> bool:
    """Whether an operation is torch's own, and not registered by somebody else, under whatever name."""
    return func.namespace in _OWN


class OpRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Base of a dispatch mode that treats some calls as one operation."""

    def __init__(self) -> None:
        super().__init__()
        self._muted = 0

    @contextmanager
    def muted(self) -> Iterator[bool]:
        """Treat everything inside as part of one operation. Yields whether that was already so."""
        self._muted += 1
        try:
            yield self._muted > 1
        finally:
            self._muted -= 1

    def inside(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that is not torch's own so that this mode sees the operations which it consists of.

        Raises NotImplementedError for one without an implementation for the device.
        """
        with torch._C.DisableTorchFunction():
            on_gpu = any(tensor.device.type == "cuda" for tensor in tensors_in((args, kwargs)))
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA if on_gpu else torch._C.DispatchKey.CPU)
        TorchDispatchMode.__enter__(self)
        try:
            return func.redispatch(keys, *args, **kwargs)
        finally:
            TorchDispatchMode.__exit__(self, None, None, None)

    def whole_call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Record a call that `WholeCalls` has made."""
        raise NotImplementedError


class WholeCalls(TorchFunctionMode):  # type: ignore[misc]
    """Passes calls of the functions in `names` to the recorder as one operation each, before torch splits them.

    Recurrent functions are not run step by step on fake tensors.
    """

    def __init__(self, recorder: OpRecorder, fake: bool, names: Collection[str] = SEQUENCES) -> None:
        super().__init__()
        self._recorder, self._fake, self._names = recorder, fake, names

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name not in self._names:
            return func(*args, **kwargs)
        with self._recorder.muted() as already:
            by_shape = self._fake and name in SEQUENCES and not kwargs
            output = fake_sequence(*args) if by_shape else func(*args, **kwargs)
        if not already:
            self._recorder.whole_call(name, args, kwargs, output)
        return output


def fake_sequence(data: torch.Tensor, *rest: Any) -> tuple[torch.Tensor, ...]:
    """Return the outputs of a recurrent function by shape: torch would take seconds to fake every step."""
    packed = isinstance(rest[0], torch.Tensor) and not rest[0].is_floating_point()
    # (batch sizes,) state, weights, has biases, layers, dropout, training, bidirectional, (batch first)
    state, bidirectional = rest[packed], rest[packed + 6]
    states = [state] if isinstance(state, torch.Tensor) else list(state)
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    return (data.new_empty([*data.shape[:-1], width]), *(torch.empty_like(s) for s in states))


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int | None:
    """The FLOPs of an operation by torch's own count; None if torch has no count for it."""
    count = flop_registry.get(func._overloadpacket)
    try:
        return None if count is None else int(count(*args, **kwargs, out_val=output))
    except TypeError:  # torch's formula is for another overload, with other arguments
        return None
