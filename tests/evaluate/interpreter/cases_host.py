"""Host memory: what is made without a device is out of a kernel's reach, and torch does not mix the two."""

from __future__ import annotations

import copy

import numpy as np
import torch
import triton
import triton.language as tl

from kernelmill.evaluate.interpreter import observer, place

GPU = torch.device("cuda", 0)


@triton.jit
def _double(n, x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def _launch(x):
    out = torch.empty(8, device="cuda")
    _double[(1,)](8, x, out, BLOCK=8)
    return out


def _refused(call, error, text):
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
        return
    raise AssertionError("it was accepted")


def _out_of_reach(x):
    assert x.device == torch.device("cpu")
    assert x.is_cpu
    assert not x.is_cuda
    assert x.get_device() == -1
    assert x.type() == "torch.FloatTensor"
    _refused(
        lambda: _launch(x), ValueError, "Pointer argument (at 1) cannot be accessed from Triton (cpu tensor?)"
    )


def _within_reach(x):
    assert x.device == GPU
    assert x.is_cuda
    assert x.get_device() == 0
    torch.testing.assert_close(_launch(x), x * 2)


def case_a_tensor_made_without_a_device_is_in_host_memory():
    torch.set_default_device(None)
    gpu = torch.ones(8, device="cuda")
    hosts = {
        "empty": torch.zeros(8),
        "tensor": torch.tensor([1.0] * 8),
        "numpy": torch.from_numpy(np.ones(8, dtype=np.float32)),
        "cpu": gpu.cpu(),
        "to cpu": gpu.to("cpu"),
        "like": torch.zeros_like(gpu, device="cpu"),
        "computed": torch.ones(8) * 2 + 1,
        "view": torch.ones(4, 4)[1:3].reshape(-1),
        "parameter": torch.nn.Parameter(torch.ones(8)).detach(),
        "deep copy": copy.deepcopy(torch.ones(8)),
        "new": torch.ones(8).new_zeros(8),
        "cast": torch.ones(8, dtype=torch.float64).float(),
        "split": torch.ones(16).chunk(2)[1],
    }
    for name, tensor in hosts.items():
        try:
            _out_of_reach(tensor)
        except AssertionError as error:
            raise AssertionError(name) from error


def case_a_tensor_made_on_or_moved_to_the_device_is_within_reach():
    torch.set_default_device(None)
    made = torch.ones(8)
    gpu = torch.ones(8, device="cuda")
    for tensor in (
        gpu,
        torch.ones(8, device=GPU),
        torch.ones(8, device=0),
        made.cuda(),
        made.to("cuda"),
        made.to(0),
        made.to(gpu),
        made.to(GPU, torch.float32),
        made.to(device="cuda:0", dtype=torch.float32),
        made.type_as(gpu),
        made.type("torch.cuda.FloatTensor"),
        torch.as_tensor(made, device="cuda"),
        torch.tensor([1.0] * 8, device=gpu.device),
        torch.zeros_like(gpu),
        torch.zeros_like(made, device="cuda"),
        gpu.new_ones(8),
        gpu + torch.tensor(1.0),
        torch.tensor(2.0) * gpu,
        gpu[torch.arange(8)],
        torch.where(gpu > 0, gpu, torch.tensor(0.0)),
        gpu.clone().copy_(made),
        torch.empty_like(gpu).copy_(made),
    ):
        _within_reach(tensor)
    _out_of_reach(made)
    assert made.cpu() is made
    assert gpu.cuda() is gpu
    assert gpu.to("cuda") is gpu


def case_a_moved_tensor_has_memory_of_its_own():
    torch.set_default_device(None)
    made = torch.zeros(8)
    there = made.cuda()
    there += 1
    assert made.sum() == 0
    back = there.cpu()
    back += 1
    assert there.cpu().sum() == 8


def case_a_default_device_is_respected():
    torch.set_default_device(None)
    with torch.device("cuda"):
        _within_reach(torch.ones(8))
        with torch.device("cpu"):
            _out_of_reach(torch.ones(8))
    _out_of_reach(torch.ones(8))
    torch.set_default_device("cuda")
    _within_reach(torch.ones(8))
    _out_of_reach(torch.ones(8, device="cpu"))


def case_torch_does_not_mix_the_two():
    torch.set_default_device(None)
    gpu, made = torch.ones(4, 4, device="cuda"), torch.ones(4, 4)
    for call in (
        lambda: gpu + made,
        lambda: made @ gpu,
        lambda: torch.cat([gpu, made]),
        lambda: torch.nn.functional.linear(gpu, made),
        lambda: torch.where(gpu > 0, gpu, made),
        lambda: gpu.mul_(made),
    ):
        _refused(call, RuntimeError, "found at least two devices, cuda:0 and cpu!")
    rows = torch.tensor([0, 2])
    assert gpu[rows].shape == (2, 4)
    gpu[rows] = 3.0
    made.copy_(gpu)


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("scale", torch.ones(8))
        self.plain = torch.ones(8)
        self.moved = torch.ones(8).cuda()


def case_a_placed_model_keeps_its_plain_tensors_on_the_host():
    torch.set_default_device(None)
    model = _Model()
    _out_of_reach(model.scale)
    place(model)
    for tensor in (model.scale, model.linear.weight[0].detach(), model.linear.bias.detach(), model.moved):
        _within_reach(tensor)
    _out_of_reach(model.plain)
    x = torch.ones(2, 8, device="cuda")
    assert model.linear(x).is_cuda
    for moved in (_Model().cuda(), _Model().to("cuda"), _Model().to(device=GPU, dtype=torch.float32)):
        _within_reach(moved.scale)
        _within_reach(moved.linear.bias.detach())
        _out_of_reach(moved.plain)
        assert isinstance(moved.linear.weight, torch.nn.Parameter)
        assert moved.linear.weight.is_leaf
    _out_of_reach(moved.cpu().scale)


def case_a_launch_that_is_switched_off_refuses_host_memory_too():
    torch.set_default_device(None)
    observer.begin(suppress_all=True)
    _refused(lambda: _launch(torch.ones(8)), ValueError, "cannot be accessed from Triton")
    assert not observer.end().launches


def case_freed_host_memory_leaves_no_mark():
    torch.set_default_device(None)
    addresses, again = set(), 0
    for _ in range(50):
        addresses.add(torch.ones(8).data_ptr())
        new = torch.ones(8, device="cuda")
        _within_reach(new)
        again += new.data_ptr() in addresses
    assert again


def case_operators_that_are_registered_for_cuda_run():
    x = torch.ones(4, device="cuda")
    library = torch.library.Library("kernelmill_cases", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 0, "CPU")
    library.impl("twice", lambda x: x * 2, "CUDA")
    assert torch.equal(torch.ops.kernelmill_cases.twice(x), x * 2)

    @torch.library.custom_op("kernelmill_cases::thrice", mutates_args=(), device_types="cuda")
    def thrice(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert torch.equal(thrice(x), x * 3)
