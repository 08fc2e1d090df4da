"""The bundled problem set is well formed, runs as written, and cannot be passed by doing nothing.

Every problem runs at its own size on the CPU. What is not covered here: speed, and agreement with a GPU.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelmill.base.resources import bundled

ROOT = bundled("data/problems")
PROBLEM_COUNTS = {"level1": 16, "level2": 16, "level3": 8}
FILE_NAME = re.compile(r"([1-9][0-9]*)_([A-Za-z][A-Za-z0-9_]*)\.py")
REQUIRED_NAMES = {"Model", "get_inputs", "get_init_inputs"}
MEMORY_LIMIT = 512 * 2**20
# Far looser than a verdict should be: a problem that a wrong answer passes at it proves nothing.
TOLERANCE = 1e-2
SHARE_THAT_MUST_DIFFER = 0.05
SMALL = 8


def _id_of(path: Path) -> int:
    return int(path.name.split("_", 1)[0])


def _label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


PROBLEM_FILES = sorted(ROOT.rglob("*.py"), key=lambda path: (path.parent.name, _id_of(path)))
each_problem_file = pytest.mark.parametrize("path", PROBLEM_FILES, ids=_label)


def _size_constants(tree: ast.Module) -> dict[str, ast.Constant]:
    """The module-level `name = <integer literal>` assignments."""
    found = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and type(node.value.value) is int
        ):
            assert len(node.targets) == 1
            assert isinstance(node.targets[0], ast.Name)
            found[node.targets[0].id] = node.value
    return found


def _load(path: Path, largest_size: int | None = None) -> ModuleType:
    """Execute a problem file; with `largest_size`, each size constant above it is lowered to it first."""
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    if largest_size is not None:
        for constant in _size_constants(tree).values():
            assert isinstance(constant.value, int)
            constant.value = min(constant.value, largest_size)
    module = ModuleType(f"bundled_{path.parent.name}_{path.stem}")
    exec(compile(tree, str(path), "exec"), module.__dict__)
    return module


def _build(module: ModuleType, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = module.Model(*module.get_init_inputs())
    assert isinstance(model, torch.nn.Module)
    return model


def _draw(module: ModuleType, seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    inputs = module.get_inputs()
    assert isinstance(inputs, list)
    assert inputs
    assert all(isinstance(value, torch.Tensor) for value in inputs)
    return inputs


def _run(model: torch.nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    with torch.no_grad():
        result = model(*inputs)
    outputs = list(result) if isinstance(result, tuple) else [result]
    assert outputs
    assert all(isinstance(output, torch.Tensor) for output in outputs)
    return outputs


def _share_that_differs(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """The share of elements that a comparison at `TOLERANCE` would call different."""
    return float((~torch.isclose(actual.double(), expected.double(), TOLERANCE, TOLERANCE)).double().mean())


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class Problem:
    """One problem at its own size, with weights from seed 0, inputs from seed 1 and what they give."""

    module: ModuleType
    model: torch.nn.Module
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]


@pytest.fixture(scope="module", params=PROBLEM_FILES, ids=_label)
def problem(request: pytest.FixtureRequest) -> Problem:
    module = _load(request.param)
    model = _build(module, seed=0)
    inputs = _draw(module, seed=1)
    return Problem(module, model, inputs, _run(model, copy.deepcopy(inputs)))


def test_manifest_lists_exactly_the_files_there_are_in_natural_order() -> None:
    listed = (ROOT / "manifest.txt").read_text(encoding="utf-8").splitlines()
    assert listed == [path.relative_to(ROOT).as_posix() for path in PROBLEM_FILES]


def test_readme_table_has_one_row_a_problem_in_manifest_order() -> None:
    rows = re.findall(
        r"^\| (\d) \| (\d+) \| (\w+) \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M
    )
    assert [f"level{level}/{number}_{name}.py" for level, number, name in rows] == [
        path.relative_to(ROOT).as_posix() for path in PROBLEM_FILES
    ]


def test_each_level_has_its_number_of_problems_and_ids_without_a_gap() -> None:
    ids: dict[str, list[int]] = {}
    for path in PROBLEM_FILES:
        ids.setdefault(path.parent.name, []).append(_id_of(path))
    assert ids == {level: list(range(1, count + 1)) for level, count in PROBLEM_COUNTS.items()}


def test_problem_names_are_unique_across_levels() -> None:
    names = [path.stem.split("_", 1)[1] for path in PROBLEM_FILES]
    assert len(set(names)) == len(names)


def test_set_as_a_whole_has_the_input_and_output_kinds_it_promises() -> None:
    dtypes: list[set[torch.dtype]] = []
    several_inputs = several_outputs = 0
    for path in PROBLEM_FILES:
        module = _load(path, largest_size=SMALL)
        inputs = _draw(module, seed=1)
        dtypes.append({value.dtype for value in inputs})
        several_inputs += len(inputs) > 1
        several_outputs += len(_run(_build(module, seed=0), inputs)) > 1
    assert sum(torch.bool in found for found in dtypes) >= 2
    assert sum(torch.int64 in found for found in dtypes) >= 2
    assert any(torch.float16 in found for found in dtypes)
    assert any(torch.bfloat16 in found for found in dtypes)
    assert several_inputs >= 2
    assert several_outputs >= 2


@each_problem_file
def test_file_is_named_and_laid_out_as_a_kernelbench_problem(path: Path) -> None:
    assert FILE_NAME.fullmatch(path.name)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert defined.keys() >= REQUIRED_NAMES
    assert ast.get_docstring(defined["Model"])
    sizes = _size_constants(tree)
    assert sizes
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in sizes)


@each_problem_file
def test_init_inputs_are_a_flat_positional_list(path: Path) -> None:
    init_inputs = _load(path).get_init_inputs()
    assert isinstance(init_inputs, list)
    assert all(type(value) in (int, float) for value in init_inputs)


def test_runs_at_its_own_size_with_finite_outputs(problem: Problem) -> None:
    for output in problem.outputs:
        assert output.numel() > 0
        assert bool(torch.isfinite(output).all())


def test_fits_in_the_memory_limit_at_its_own_size(problem: Problem) -> None:
    state = list(problem.model.state_dict().values())
    assert _bytes(problem.inputs + problem.outputs + state) < MEMORY_LIMIT


def test_same_seeds_give_the_same_weights_inputs_and_outputs(problem: Problem) -> None:
    model = _build(problem.module, seed=0)
    inputs = _draw(problem.module, seed=1)
    first_state = problem.model.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(value, first_state[name]), name
    assert all(torch.equal(a, b) for a, b in zip(inputs, problem.inputs, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(_run(model, inputs), problem.outputs, strict=True))


def test_forward_leaves_its_inputs_weights_and_buffers_as_they_were(problem: Problem) -> None:
    inputs = copy.deepcopy(problem.inputs)
    state = copy.deepcopy(problem.model.state_dict())
    _run(problem.model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(inputs, problem.inputs, strict=True))
    for name, value in problem.model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_training_mode_and_evaluation_mode_agree(problem: Problem) -> None:
    model = copy.deepcopy(problem.model).eval()
    outputs = _run(model, problem.inputs)
    assert all(torch.equal(a, b) for a, b in zip(outputs, problem.outputs, strict=True))


def test_new_inputs_change_every_output(problem: Problem) -> None:
    others = _run(problem.model, _draw(problem.module, seed=2))
    for output, other in zip(problem.outputs, others, strict=True):
        assert output.shape == other.shape
        assert _share_that_differs(other, output) >= SHARE_THAT_MUST_DIFFER


def test_each_input_on_its_own_changes_some_output(problem: Problem) -> None:
    fresh = _draw(problem.module, seed=2)
    for position, value in enumerate(fresh):
        inputs = [*problem.inputs[:position], value, *problem.inputs[position + 1 :]]
        shares = [
            _share_that_differs(other, output)
            for other, output in zip(_run(problem.model, inputs), problem.outputs, strict=True)
        ]
        assert max(shares) >= SHARE_THAT_MUST_DIFFER, f"input {position}: {shares}"


def test_no_output_is_matched_by_a_constant(problem: Problem) -> None:
    for output in problem.outputs:
        values = output.double()
        for constant in (torch.zeros(()), values.mean(), values.median()):
            guess = torch.full_like(values, float(constant))
            assert _share_that_differs(guess, output) >= SHARE_THAT_MUST_DIFFER, float(constant)


def test_no_output_is_matched_by_handing_an_input_back(problem: Problem) -> None:
    for output in problem.outputs:
        for value in problem.inputs:
            if value.numel() == output.numel():
                guess = value.reshape(output.shape)
                assert _share_that_differs(guess, output) >= SHARE_THAT_MUST_DIFFER


@each_problem_file
@pytest.mark.parametrize("largest_size", [4, SMALL, 32])
def test_problem_still_runs_when_its_size_constants_are_lowered(path: Path, largest_size: int) -> None:
    module = _load(path, largest_size)
    for output in _run(_build(module, seed=0), _draw(module, seed=1)):
        assert bool(torch.isfinite(output).all())


@each_problem_file
def test_every_weight_and_buffer_has_a_part_in_the_output(path: Path) -> None:
    module = _load(path, largest_size=SMALL)
    model = _build(module, seed=0)
    inputs = _draw(module, seed=1)
    before = _run(model, inputs)
    for name, value in model.state_dict().items():
        kept = value.clone()
        # A new value in each place; running variances stay positive, and bool buffers flip.
        value.copy_(~value if value.dtype == torch.bool else value + 0.5 + torch.rand_like(value))
        after = _run(model, inputs)
        value.copy_(kept)
        assert any(
            _share_that_differs(a, b) >= SHARE_THAT_MUST_DIFFER for a, b in zip(after, before, strict=True)
        ), name


@each_problem_file
def test_all_tensors_follow_the_model_to_another_device(path: Path) -> None:
    # The meta device stands in for a GPU: mixing it with a tensor left on the CPU raises.
    module = _load(path)
    model = _build(module, seed=0).to("meta")
    outputs = _run(model, [value.to("meta") for value in _draw(module, seed=1)])
    assert all(output.device.type == "meta" for output in outputs)
