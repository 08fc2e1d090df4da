"""The reference and its oracle: both conventions, determinism, and no silent change of what is computed."""

from __future__ import annotations

import textwrap
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from kernelmill.evaluate.task.reference import BadReference, Reference, load_reference, seed_all  # noqa: E402
from kernelmill.evaluate.task.values import Call, Outputs, UnsupportedValue, flatten  # noqa: E402
from kernelmill.torch_calls.tensors import apart  # noqa: E402


def reference(body: str, inputs: str = "[torch.randn(3, 8)]", init: str = "", start: str = "") -> Reference:
    """One class `Model` whose forward has this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    set_up = textwrap.indent(textwrap.dedent(init).strip() or "pass", " " * 8)
    return load_reference(
        f"import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n{start}\n"
        f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{set_up}\n"
        f"    def forward(self, x):\n{lines}\n\ndef get_inputs():\n    return {inputs}\n"
    )


def exact(made: Reference) -> tuple[Outputs, Outputs, str]:
    model, call = made.new(0), made.inputs(1)
    answer = made.answer(model, call, 2)
    return answer.exact, answer.eager, answer.note


def test_kernelbench_gives_positional_arguments() -> None:
    made = load_reference(
        "import torch\nn = 5\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, a, b):\n        super().__init__()\n        self.linear = torch.nn.Linear(a, b)\n"
        "    def forward(self, x):\n        return self.linear(x)\n"
        "def get_inputs():\n    return [torch.rand(2, n)]\n"
        "def get_init_inputs():\n    return [n, 7]\n"
    )
    assert made.run(made.new(0), made.inputs(0)).leaves[0].shape == (2, 7)


def test_kernelbook_gives_a_list_and_a_dictionary_and_may_want_its_configuration() -> None:
    made = load_reference(
        "import torch\nfrom torch.nn import Module\nfrom _paritybench_helpers import _mock_config\n"
        "class Part(Module):\n    def forward(self, x):\n        return x * 2\n"
        "class Whole(Module):\n"
        "    def __init__(self, config, scale):\n        super().__init__()\n"
        "        self.part, self.n, self.scale = Part(), config.n, scale\n"
        "    def forward(self, x):\n        return self.part(x)[:, :self.n] * self.scale\n"
        "def get_inputs():\n    return [torch.rand([4, 4])]\n"
        "def get_init_inputs():\n    return [[], {'config': _mock_config(n=3), 'scale': 2.0}]\n",
        "Whole",
    )
    assert made.kind.__name__ == "Whole"
    assert made.run(made.new(0), made.inputs(0)).leaves[0].shape == (4, 3)


@pytest.mark.parametrize(
    ("code", "entry_point", "says"),
    [
        ("def f(:", None, "SyntaxError"),
        ("import nothing_of_the_kind", None, "ModuleNotFoundError"),
        ("raise SystemExit(3)", None, "SystemExit"),
        ("import torch\nclass Model(torch.nn.Module): pass", None, "get_inputs"),
        ("def get_inputs(): return []", None, "none"),
        ("def get_inputs(): return []\nModel = 3", "Model", "not an nn.Module"),
        (
            "from torch.nn import Module\nclass A(Module): pass\nclass B(Module): pass\ndef get_inputs(): return []",
            None,
            "A, B",
        ),
    ],
)
def test_a_source_that_is_no_reference_is_refused_in_one_line(
    code: str, entry_point: str | None, says: str
) -> None:
    with pytest.raises(BadReference, match=says) as caught:
        load_reference(code, entry_point)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raises", "passing"),
    [
        ("OSError(28, 'No space left on device')", True),
        ("BlockingIOError(11, 'Resource temporarily unavailable')", True),
        ('RuntimeError("can\'t start new thread")', True),
        ('RuntimeError("DefaultCPUAllocator: can\'t allocate memory: you tried to allocate 9 bytes")', True),
        ("FileNotFoundError(2, 'No such file', 'weights.pt')", False),
        ("ImportError('no such package')", False),
        ("RuntimeError('sizes do not match')", False),
    ],
)
def test_what_the_machine_wants_for_may_pass_and_a_fault_of_the_source_stays(
    raises: str, passing: bool
) -> None:
    with pytest.raises(BadReference) as caught:
        load_reference(f"raise {raises}")
    assert caught.value.passing == passing
    made = reference(f"raise {raises}")
    with pytest.raises(BadReference) as caught:
        made.run(made.new(0), made.inputs(0))
    assert caught.value.passing == passing


def test_the_only_class_that_no_other_inherits_from_is_the_reference() -> None:
    made = load_reference(
        "from torch.nn import Module\nclass Base(Module): pass\nclass Whole(Base):\n    def forward(self): return 1\n"
        "def get_inputs(): return []"
    )
    assert made.kind.__name__ == "Whole"


def test_an_error_in_the_forward_names_the_line() -> None:
    made = reference("return x @ x")
    with pytest.raises(BadReference, match=r"forward\(\): RuntimeError: .* \(line \d+: return x @ x\)"):
        made.run(made.new(0), made.inputs(0))


def test_the_same_seed_gives_the_same_model_and_inputs_and_another_seed_others() -> None:
    made = reference(
        "return self.linear(x)",
        "[torch.randn(2, 4), ][:1]",
        "import random\nimport numpy\nself.linear = nn.Linear(4, 4)\nself.a = random.random()\nself.b = numpy.random.rand()",
    )
    one, same, other = made.new(5), made.new(5), made.new(6)
    assert torch.equal(one.linear.weight, same.linear.weight)
    assert (one.a, one.b) == (same.a, same.b)
    assert not torch.equal(one.linear.weight, other.linear.weight)
    assert one.a != other.a
    assert torch.equal(made.inputs(5).args[0], made.inputs(5).args[0])
    assert not torch.equal(made.inputs(5).args[0], made.inputs(6).args[0])


def test_a_reference_that_writes_to_its_inputs_gives_the_same_answer_twice() -> None:
    made = reference("return x.add_(1)")
    model, call = made.new(0), made.inputs(0)
    before = call.args[0].clone()
    first, second = made.run(model, call), made.run(model, call)
    assert torch.equal(first.leaves[0], second.leaves[0])
    assert torch.equal(call.args[0], before)
    facts = made.examine(0)
    assert facts.mutates_inputs
    assert facts.aliases_inputs


def test_a_reference_that_keeps_a_state_gives_the_same_answer_twice() -> None:
    made = reference("self.n += 1\nreturn x * self.n", init="self.n = 0")
    model, call = made.new(0), made.inputs(0)
    assert torch.equal(made.run(model, call).leaves[0], made.run(model, call).leaves[0])


def test_buffers_that_a_run_changes_are_reported() -> None:
    made = reference("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8)")
    model = made.new(0)
    outputs = made.run(model, made.inputs(0))
    assert set(outputs.buffers) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert torch.equal(model.norm.running_mean, torch.zeros(8))
    assert made.run(model.eval(), made.inputs(0)).buffers == {}


@pytest.mark.parametrize(
    "body",
    [
        "return x.float() * 0.1",
        "return x.to(torch.float32).sin()",
        "return x.type(torch.FloatTensor).sin()",
        "return x.type('torch.FloatTensor').sin()",
        "return x.half().float().sin()",
        "return x + torch.ones(8, dtype=torch.float32) / 3",
        "return x + torch.full((8,), 1 / 3)",
        "return x @ CONSTANT",
        "return x @ self.plain",
        "return x @ self.many[0]['w']",
        "return F.linear(x, self.weight)",
        "return torch.tensor(1 / 3) * x",
        "out = torch.empty(3, 8)\nout.copy_(x / 3)\nreturn out",
        "with torch.autocast('cpu', enabled=False):\n    return x / 3",
    ],
)
def test_the_oracle_is_in_float64_whatever_type_the_forward_asks_for(body: str) -> None:
    made = reference(
        body,
        init="self.plain = torch.rand(8, 8)\nself.many = [{'w': torch.rand(8, 8)}]\n"
        "self.weight = nn.Parameter(torch.rand(8, 8))",
        start="torch.manual_seed(0)\nCONSTANT = torch.rand(8, 8)",
    )
    found, eager, note = exact(made)
    assert note == ""
    assert found.leaves[0].dtype == torch.float64
    assert not torch.equal(found.leaves[0], eager.leaves[0].double())  # more precise than eager …
    assert torch.allclose(found.leaves[0], eager.leaves[0].double(), atol=1e-2)  # … and the same function


def test_the_oracle_of_a_half_precision_task_starts_from_the_very_inputs() -> None:
    made = reference("return x * 3", "[torch.randn(64).half()]")
    found, eager, _ = exact(made)
    assert eager.leaves[0].dtype == torch.float16
    assert torch.equal(found.leaves[0], made.inputs(1).args[0].double() * 3)


def test_recurrent_networks_and_complex_numbers_have_an_oracle() -> None:
    for body, init in (("return self.r(x)[0]", "self.r = nn.LSTM(8, 5)"), ("return torch.fft.fft(x)", "")):
        found, _, note = exact(reference(body, init=init))
        assert note == ""
        assert found.leaves[0].dtype in (torch.float64, torch.complex128)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return x.view(torch.int32).float()", "bits"),
        ("return (x.view(torch.int32) >> 1).view(torch.float32)", "bits"),
        ("return torch.from_numpy(x.numpy().astype('float32'))", "is float32 in the float64 run"),
        ("assert x.dtype == torch.float32\nreturn x", "AssertionError"),
        ("return x[:, : 8 * 4 // x.element_size()]", "shape (3, 4)"),
    ],
)
def test_where_no_float64_run_can_stand_for_the_function_eager_does_and_says_why(
    body: str, says: str
) -> None:
    found, eager, note = exact(reference(body))
    assert note.startswith("oracle: float32 (")
    assert says in note
    assert torch.equal(found.leaves[0], eager.leaves[0].double())


def test_a_result_that_is_rounding_alone_is_told() -> None:
    made = reference("return ((x - x.mean()) / x.std()).mean().reshape(1, 1).expand(3, 3)")
    facts = made.examine(1)
    assert facts.distance > 0.1
    assert "away" in facts.oracle_note
    assert made.answer(made.new(0), made.inputs(0)).note == facts.oracle_note


def test_randomness_is_found_and_told_apart_by_mode() -> None:
    plain = reference("return x * 2").examine(0)
    dropout = reference("return F.dropout(x, 0.5, self.training)").examine(0)
    always = reference("return x + torch.randn(8)").examine(0)
    assert (plain.random, plain.random_in_eval, plain.mode_matters) == (False, False, False)
    assert (dropout.random, dropout.random_in_eval) == (True, False)
    assert (always.random, always.random_in_eval) == (True, True)


def test_a_reference_for_which_the_mode_matters_is_known() -> None:
    assert reference("return self.norm(x)", init="self.norm = nn.BatchNorm1d(8)").examine(0).mode_matters
    assert not reference("return self.norm(x)", init="self.norm = nn.LayerNorm(8)").examine(0).mode_matters


def test_a_nudge_moves_the_oracle_by_about_one_rounding() -> None:
    made = reference("return self.linear(x)", init="self.linear = nn.Linear(8, 8)")
    model, call = made.new(0), made.inputs(0)
    wide = made.oracle(model)
    before, after = made.run_exact(wide, call).leaves[0], made.nudged(wide, call, 3).leaves[0]
    moved = float((before - after).norm() / before.norm())
    assert 1e-9 < moved < 1e-6
    assert torch.equal(after, made.nudged(wide, call, 3).leaves[0])


def test_a_nudge_costs_no_run_after_it_a_new_copy_of_the_model() -> None:
    made = reference("return self.linear(x)", init="self.linear = nn.Linear(8, 8)")
    model, call = made.new(1), made.inputs(2)
    wide = made.oracle(model)
    made.answer(model, call, wide=wide)
    kept = [spare.own for spare in made._spares._kept]
    made.nudged(wide, call, 3)
    made.answer(model, call, wide=wide)
    assert {id(spare.own) for spare in made._spares._kept} == set(map(id, kept))
    assert len(kept) == 2


def test_a_source_written_for_a_gpu_runs_on_the_cpu() -> None:
    made = load_reference(
        "import torch\nimport torch.nn as nn\ndevice = torch.device('cuda')\nCONSTANT = torch.ones(4, device='cuda:0')\n"
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Linear(4, 4, device='cuda').cuda()\n"
        "    def forward(self, x):\n        return self.w(x.to('cuda')) + torch.zeros(4).to(device) + CONSTANT.cuda()\n"
        "def get_inputs(): return [torch.rand(2, 4, device=device), torch.rand(2).to(device, torch.float16)][:1]\n"
    )
    answer = made.answer(made.new(0), made.inputs(0))
    assert answer.note == ""
    assert answer.eager.leaves[0].device.type == answer.exact.leaves[0].device.type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_reference_runs_on_its_device() -> None:
    made = reference("return self.linear(x) + torch.zeros(8).cuda()", init="self.linear = nn.Linear(8, 8)")
    made.device = "cuda"
    answer = made.answer(made.new(0), made.inputs(0))
    assert answer.note == ""
    assert answer.eager.leaves[0].is_cuda
    assert answer.exact.leaves[0].is_cuda


def test_keyword_inputs_are_passed() -> None:
    made = load_reference(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x, *, scale): return x * scale\n"
        "def get_inputs(): return [torch.ones(2)]\ndef get_input_kwargs(): return {'scale': torch.tensor(3.0)}\n"
    )
    call = made.inputs(0)
    assert made.run(made.new(0), call).leaves[0].tolist() == [3.0, 3.0]
    assert [path for path, _ in call.leaves()] == ["args[0]", "kwargs['scale']"]


# -------------------------------------------------------------------------------------------------------- values


def test_outputs_are_flattened_with_their_paths() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    found = flatten({"b": (a, None), "a": [b, 2, 1.5, "x"]})
    assert found.paths == ["output['a'][0]", "output['a'][1]", "output['a'][2]", "output['b'][0]"]
    assert found.structure == "{'a': (tensor, int, float, 'x'), 'b': (tensor, None)}"
    assert found.leaves[2].dtype == torch.float32
    assert flatten((a,)).structure == flatten([a]).structure != flatten(a).structure
    assert flatten(torch.max(torch.ones(2, 2), 0)).structure == "(tensor, tensor)"


@pytest.mark.parametrize("value", [object(), {1, 2}, slice(1)])
def test_outputs_that_cannot_be_compared_are_refused(value: object) -> None:
    with pytest.raises(UnsupportedValue):
        flatten([value])


def test_a_copy_of_a_call_keeps_strides_and_shared_tensors() -> None:
    x = torch.randn(4, 6).t()
    gaps = torch.randn(8)[::2]
    copy = Call([x, x, [gaps]], {"y": torch.ones(1).expand(5)}).clone()
    assert copy.args[0] is copy.args[1]
    assert copy.args[0].stride() == x.stride()
    assert copy.args[2][0].stride() == gaps.stride()
    assert torch.equal(copy.args[2][0], gaps)
    copy.args[0].zero_()
    copy.kwargs["y"][0] = 7
    assert x.abs().sum() > 0
    assert copy.kwargs["y"].tolist() == [7, 1, 1, 1, 1]


def test_seeds_beyond_32_bits_are_taken() -> None:
    seed_all(2**62 + 5)


def test_a_part_that_was_built_in_eval_mode_and_cannot_train_makes_the_mode_matter() -> None:
    made = reference(
        """
        if self.part.training:
            raise ValueError("not with inputs of this length")
        return self.part(x)
        """,
        init="self.part = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)).eval()",
    )
    facts = made.examine(0)
    assert facts.mode_matters
    assert not facts.random


def test_a_package_that_is_not_here_is_named() -> None:
    with pytest.raises(BadReference, match=r"it needs no_such_package, which is not installed: .*line"):
        reference("return x", start="import no_such_package.part")


def test_a_sparse_tensor_is_its_parts_until_a_model_is_called() -> None:
    class Pair(NamedTuple):
        matrix: Any
        vector: torch.Tensor

    places = torch.tensor([[0, 2, 2], [1, 0, 0]])
    matrix = torch.sparse_coo_tensor(places, torch.tensor([1.0, 2.0, 3.0]), (3, 2), check_invariants=True)
    call = Call(apart([Pair(matrix, torch.ones(2))]))
    assert [path for path, _ in call.leaves()] == ["args[0][0].places[0]", "args[0][0].values", "args[0][1]"]
    doubled = call.map(lambda tensor: tensor * 2 if tensor.is_floating_point() else tensor)
    given: list[Any] = []
    doubled.on(given.append)
    assert type(given[0]) is Pair
    assert torch.equal(given[0].matrix.to_dense(), 2 * matrix.to_dense())
    assert flatten(matrix).structure == "sparse_coo(3, 2)(tensor, tensor)"
    assert [leaf.tolist() for leaf in flatten(matrix).leaves] == [[[0, 2], [1, 0]], [1.0, 5.0]]
