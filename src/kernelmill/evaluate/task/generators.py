"""Generate other inputs for a task: the same shapes and types, with other values by each input's role.

`distribution` makes a call of a named kind from one of the task's own. It keeps what the task's draws have in
common (`roles`): positions that are always zero (a triangular matrix), symmetry, sorted rows, the range of an
index.

A reference may reject such inputs: it may raise or return NaN (a logarithm of negative data). `settle_signs`
tries zero-mean data on each input and records where it is rejected. For the rest the caller runs the oracle
and asks `judge.tolerance.judgeable`.

The result depends only on the arguments: all randomness comes from the given generator, which is on the
tensors' device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelmill.evaluate.task.chunked import changed as changed_in_pieces
from kernelmill.evaluate.task.chunked import chunks
from kernelmill.evaluate.task.roles import Role
from kernelmill.evaluate.task.values import Call, clone_tensor, is_part

DISTRIBUTIONS = (
    "own",
    "zero_mean",
    "x4",
    "x8",
    "x100",
    "x1e4",
    "x1e-3",
    "negated",
    "half_x64",
    "constant_rows",
    "sorted",
    "outlier",
    "zeros",
    "ties",
    "zero_rows",
    "shifted",
    "closed_rows",
    "lines",
    "suffix",
    "masks",
    "indices",
    "wide_integers",
    "ignored",
    "fewer",
)
NUDGE = 0.015
LINE_BYTES = 128
LINES = 256
"""One memory line in this many is changed."""


def settle_signs(
    call: Call, found: list[Role], generator: torch.Generator, accepts: Callable[[Call], bool]
) -> None:
    """Set `signed` of each data input: whether the reference accepts zero-mean values for it.

    `accepts` runs the reference. It is asked for all inputs together first, and for each one if that fails.
    """
    trial = distribution("zero_mean", call, found, generator)
    if trial is None or accepts(trial):
        return
    data = [role for role in found if role.kind == "data"]
    for role in data:
        role.signed = False
    for role in data:
        role.signed = True
        trial = distribution("zero_mean", call, found, generator)
        role.signed = trial is not None and accepts(trial)


def distribution(name: str, call: Call, found: list[Role], generator: torch.Generator) -> Call | None:
    """The call with other values; None if this kind changes none of its inputs."""
    if name == "own":
        return call.clone()
    change = _CHANGES[name]
    leaves = dict(call.leaves())
    changed = {}
    for role in found:
        tensor = leaves[role.path]
        if not tensor.numel():
            continue
        new = change(tensor.detach().contiguous(), role, generator)
        if new is not None:
            changed[role.path] = _laid_out(_keep_form(new.to(tensor.dtype), role).to(tensor.device), tensor)
    return call.replace(changed) if changed else None


def _laid_out(new: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor in the memory layout of another one, if that has no gaps or overlaps."""
    if new.stride() == like.stride() or new.shape != like.shape:
        return new
    laid = torch.empty_like(like)  # keeps strides that fill the memory
    return laid.copy_(new) if laid.stride() == like.stride() else new


def nudged(call: Call, found: list[Role], generator: torch.Generator, by: float = NUDGE) -> Call:
    """The call with each number of the data changed by up to `by`, relative."""
    leaves, changed = dict(call.leaves()), {}
    for role in found:
        tensor = leaves[role.path]
        if role.kind == "data":
            new = changed_in_pieces(tensor.detach(), lambda chunk: _moved(chunk, generator, by))
            changed[role.path] = _keep_form(new, role).to(tensor.device)
    return call.replace(changed)


def smaller_here_and_there(call: Call, found: list[Role], generator: torch.Generator) -> Call:
    """The call with half of the numbers of the data, at random, made smaller. The largest of each sign stays."""

    def smaller(x: torch.Tensor) -> torch.Tensor:
        dice, by = (
            torch.rand(x.shape, generator=generator, device=generator.device, dtype=torch.float64)
            for _ in range(2)
        )
        kept = (dice < 0.5) | (x == x.max()) | (x == x.min())
        return torch.where(kept, x.double(), x.double() * (0.3 + 0.6 * by))

    leaves = dict(call.leaves())
    data = [role for role in found if role.kind == "data"]
    changed = {
        one.path: _keep_form(changed_in_pieces(leaves[one.path].detach(), smaller), one) for one in data
    }
    return call.replace(changed)


def rows_moved(call: Call, found: list[Role], generator: torch.Generator) -> Call:
    """The call with the rows of each of its data in another order."""
    leaves, changed = dict(call.leaves()), {}
    for role in found:
        tensor = leaves[role.path]
        if role.kind == "data" and tensor.dim() > 1:
            order = torch.randperm(tensor.shape[0], generator=generator, device=generator.device)
            changed[role.path] = _keep_form(tensor.detach()[order.to(tensor.device)], role)
    return call.replace(changed)


def _moved(x: torch.Tensor, generator: torch.Generator, most: float) -> torch.Tensor:
    by = torch.rand(x.shape, generator=generator, device=generator.device, dtype=torch.float64)
    return x.double() * (1 + most * (2 * by - 1))


def noncontiguous(call: Call) -> Call | None:
    """The same values in another memory layout: transposed, or every second element of a longer row.

    Parts of sparse tensors stay as they are: torch lays them out.
    """
    parts = {id(leaf) for path, leaf in call.leaves() if is_part(path)}

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() < 2 or tensor.dim() == 0 or id(tensor) in parts:
            return clone_tensor(tensor)
        if tensor.dim() > 1 and min(tensor.shape[-2:]) > 1:
            return tensor.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
        wide = torch.stack([tensor.detach(), torch.flip(tensor.detach(), [-1])], -1)
        return wide.flatten(-2)[..., ::2]

    changed = call.map(change)
    same = all(t.is_contiguous() for path, t in changed.leaves() if _is_tensor(t) and not is_part(path))
    return None if same else changed


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor)


def _keep_form(tensor: torch.Tensor, role: Role) -> torch.Tensor:
    if role.ordered:
        tensor = tensor.sort(-1).values
    if role.symmetric:
        tensor = torch.triu(tensor) + torch.triu(tensor, 1).transpose(-1, -2)
    return tensor if role.zeros is None else tensor.masked_fill(role.zeros, 0)


# ------------------------------------------------------------------------------------------------- one by one

_Change = Callable[[torch.Tensor, Role, torch.Generator], torch.Tensor | None]


def _on_data(
    change: Callable[[torch.Tensor, torch.Generator], torch.Tensor],
    signed: bool = False,
    each: bool = True,
) -> _Change:
    """Apply `change` to data only. `each`: the change is elementwise, and is made in float64."""

    def only_data(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
        if role.kind != "data" or (signed and not role.signed):
            return None
        if each:
            return changed_in_pieces(x, lambda chunk: change(chunk.double(), generator))
        return change(x.double() if x.element_size() == 1 else x, generator)

    return only_data


def _normal(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(x.shape, generator=generator, device=generator.device, dtype=torch.float64)


def _half_x64(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flat = x.flatten().clone()
    flat[flat.numel() // 2 :] *= 64
    return flat.view(x.shape)


def _constant_rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x[..., :1].expand_as(x).contiguous() if x.dim() else x


def _sorted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x.sort(-1).values if x.dim() else x


def _zeros(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A random half is exactly zero."""
    kept = torch.rand(x.shape, generator=generator, device=generator.device) < 0.5
    return torch.where(kept, x, 0)


def _zero_rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A quarter of the rows is zero everywhere."""
    return torch.where(_quarters(x, generator) == 0, 0, x) if x.dim() > 1 else x


def _quarters(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row's quarter, at random. There is a row in the first one."""
    shape = (*x.shape[:-1], 1)
    count = math.prod(shape)
    places = torch.randperm(count, generator=generator, device=generator.device)
    return (places // max(1, count // 4)).view(shape)


def _ties(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Eight levels, so that most numbers occur often."""
    step = (x.max() - x.min()) / 7
    return x if not bool(step > 0) else x.min() + ((x - x.min()) / step).round() * step


def _shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + 4 * x.std() if x.numel() > 1 else x


def _outlier(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    flat = x.flatten().clone()
    place = torch.randint(flat.numel(), (1,), generator=generator, device=generator.device)
    flat[place] = (1000 * torch.maximum(x.max(), -x.min()).double()).to(x.dtype)
    return flat.view(x.shape)


def _other_values(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """Values that differ everywhere, within the range of the task's own."""
    if role.kind in ("fixed", "other", "probability"):
        return None
    if role.kind == "mask":
        return 1 - x.to(torch.uint8)
    if role.permutation:
        return x.roll(
            1 + int(torch.randint(x.numel() - 1, (1,), generator=generator, device=generator.device))
        )
    if role.kind == "index":
        span = int(role.high - role.low) + 1
        if span < 2:
            return None
        if role.unique:
            return x.flatten().roll(1).view(x.shape)
        step = torch.randint(1, span, x.shape, generator=generator, device=generator.device)
        other = int(role.low) + (x.long() - int(role.low) + step) % span
        return other if role.sentinel is None else torch.where(x == role.sentinel, x.long(), other)
    span_ = role.high - role.low or 1.0
    shift = 0.25 + 0.5 * torch.rand(
        x.shape, generator=generator, device=generator.device, dtype=torch.float64
    )
    return role.low + (x.double() - role.low + span_ * shift) % span_


def _lines(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    width = max(LINE_BYTES // x.element_size(), 1)
    count = -(-x.numel() // width)
    chosen = torch.randperm(count, generator=generator, device=generator.device)[: -(-count // LINES)]
    touched = torch.zeros(count, dtype=torch.bool, device=x.device)
    touched[chosen] = True
    if role.permutation or role.unique:
        return _moved_around(x, touched.repeat_interleave(width)[: x.numel()])
    result = torch.empty_like(x)
    for start, (chunk, target) in chunks(x, result):
        end = start + chunk.numel()
        new = _other_values(chunk, role, generator)
        if new is None:
            return None
        first = start // width
        lines = touched[first : -(-end // width)].repeat_interleave(width)[start - first * width :]
        target.copy_(torch.where(lines[: chunk.numel()], new.to(x.dtype), chunk))
    return result


def _suffix(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    flat = x.flatten().clone()
    start = flat.numel() - -(-flat.numel() // 16)
    if role.permutation or role.unique:
        return _moved_around(x, torch.arange(flat.numel(), device=x.device) >= start)
    new = _other_values(flat[start:], role, generator)
    if new is None:
        return None
    flat[start:] = new.to(flat.dtype)
    return flat.view(x.shape)


def _moved_around(x: torch.Tensor, where: torch.Tensor) -> torch.Tensor | None:
    """The same values, of which those in some places change theirs."""
    flat = x.flatten().clone()
    if int(where.sum()) < 2:
        return None
    flat[where] = flat[where].roll(1)
    return flat.view(x.shape)


def _masks(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """A mask of random density.

    Rows of more than one element have at least one open position each, and at least one closed position in
    all.
    """
    if role.kind != "mask" or x.dim() == 0:
        return None
    density = 0.2 + 0.6 * float(torch.rand(1, generator=generator, device=generator.device))
    new = torch.rand(x.shape, generator=generator, device=generator.device) < density
    if x.shape[-1] > 1:
        open_at = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=generator.device)
        new.scatter_(-1, open_at, True)
        new.view(-1)[int(open_at.view(-1)[0]) - 1 if int(open_at.view(-1)[0]) else 1] = False
    return new.to(x.dtype)


def _closed_rows(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """A mask of which a quarter of the rows is closed, and a quarter open, whichever value means that."""
    new = _masks(x, role, generator) if x.dim() > 1 else None
    if new is None:
        return None
    quarter = _quarters(x, generator)
    return torch.where(quarter == 0, 0, torch.where(quarter == 1, 1, new)).to(x.dtype)


def _indices(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """Unsorted indices, about half of them equal, with both ends of the range among them."""
    if role.kind != "index":
        return None
    if role.permutation:
        return torch.randperm(x.numel(), generator=generator, device=generator.device)
    low, high = int(role.low), int(role.high)
    if role.unique:
        some = torch.randperm(high - low + 1, generator=generator, device=generator.device)[: x.numel()]
        return (low + some).view(x.shape)
    new = torch.randint(low, high + 1, x.shape, generator=generator, device=generator.device).flatten()
    repeated = torch.rand(new.shape, generator=generator, device=generator.device) < 0.5
    new[repeated] = int(torch.randint(low, high + 1, (1,), generator=generator, device=generator.device))
    new[-1], new[0] = low, high
    if role.sentinel is not None:
        new = torch.where(x.flatten() == role.sentinel, role.sentinel, new)
    return new.view(x.shape)


def _wide_integers(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """Integers far beyond the drawn ones, of both signs. Not on a GPU, which an index out of range breaks."""
    plain = role.kind == "index" and not (role.permutation or role.unique or role.sentinel is not None)
    if not plain or x.device.type != "cpu" or x.element_size() == 1:
        return None
    most = 1 << {2: 13, 4: 20, 8: 30}[x.element_size()]
    return torch.randint(-most, most, x.shape, generator=generator)


def _ignored(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """Some targets that torch's losses leave out unless told otherwise."""
    plain = role.kind == "index" and not (role.permutation or role.unique or role.sentinel is not None)
    if not plain or x.device.type != "cpu" or x.dtype != torch.int64:
        return None
    return torch.where(torch.rand(x.shape, generator=generator) < 0.2, -100, x)


def _fewer(x: torch.Tensor, role: Role, generator: torch.Generator) -> torch.Tensor | None:
    """Smaller numbers where all are the same in every draw: lengths of rows that are all full."""
    if (
        role.kind != "fixed"
        or x.is_floating_point()
        or x.is_complex()
        or x.dim() != 1
        or x.device.type != "cpu"
    ):
        return None
    full = int(x[0])
    if full < 2 or x.dtype == torch.bool or not bool((x == full).all()):
        return None
    return torch.randint(1, full + 1, x.shape, generator=generator)


def with_nonfinite(call: Call, found: list[Role]) -> Call | None:
    """The call with one NaN and one infinity in each of its data; None if there is none."""
    leaves, changed = dict(call.leaves()), {}
    for role in found:
        tensor = leaves[role.path]
        if role.kind == "data" and tensor.numel() > 1 and tensor.element_size() > 1:
            flat = tensor.detach().flatten().clone()
            flat[0], flat[-1] = float("nan"), float("inf")
            changed[role.path] = flat.view(tensor.shape)
    return call.replace(changed) if changed else None


_CHANGES: dict[str, Any] = {
    "zero_mean": _on_data(_normal, signed=True),
    "x4": _on_data(lambda x, generator: x * 4),
    "x8": _on_data(lambda x, generator: x * 8),
    "x100": _on_data(lambda x, generator: x * 100),
    "x1e4": _on_data(lambda x, generator: x * 1e4),
    "x1e-3": _on_data(lambda x, generator: x * 1e-3),
    "negated": _on_data(lambda x, generator: -x, signed=True),
    "half_x64": _on_data(_half_x64, each=False),
    "constant_rows": _on_data(_constant_rows, each=False),
    "sorted": _on_data(_sorted, each=False),
    "outlier": _on_data(_outlier, each=False),
    "zeros": _on_data(_zeros),
    "ties": _on_data(_ties, each=False),
    "zero_rows": _on_data(_zero_rows, each=False),
    "shifted": _on_data(_shifted, each=False),
    "lines": _lines,
    "suffix": _suffix,
    "masks": _masks,
    "closed_rows": _closed_rows,
    "indices": _indices,
    "wide_integers": _wide_integers,
    "ignored": _ignored,
    "fewer": _fewer,
}


def other_weights(model: Any, generator: torch.Generator, far: bool = False) -> dict[str, torch.Tensor]:
    """New values for the model's state, to detect a candidate that hard-codes weights or drops zero weights.

    A random half of each parameter is scaled by 1.5; `far`, by -1 or by 4. A parameter whose elements are all equal (a bias of
    zeros, a scale of ones) also gets noise. Running means and variances of normalisations change too, and other buffers become a multiple of themselves.
    """
    state = {}
    for name, tensor in model.named_parameters():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        old = tensor.detach().double()
        dice = torch.rand(old.shape, generator=generator, device=generator.device)
        new = torch.where(dice < 0.5, old * 1.5, old)
        if far:
            new = torch.where(dice < 0.4, -old, torch.where(dice < 0.5, old * 4, old))
        if bool((old == old.flatten()[0]).all()):
            new = new + 0.1 * torch.randn(
                old.shape, generator=generator, device=generator.device, dtype=torch.float64
            )
        state[name] = new.to(tensor.dtype).to(tensor.device)
    for name, tensor in model.named_buffers():
        if not name.endswith(("running_mean", "running_var")):
            if tensor.is_floating_point() and tensor.numel():  # what holds of a table holds of its multiple
                state[name] = tensor * 1.25
            continue
        noise = torch.rand(
            tensor.shape, generator=generator, device=generator.device, dtype=torch.float64
        ).to(tensor.device)
        if name.endswith("running_mean"):
            state[name] = (tensor + 0.2 * (noise - 0.5)).to(tensor.dtype)
        elif name.endswith("running_var"):
            state[name] = (tensor * (0.5 + noise)).to(tensor.dtype)
    return state
