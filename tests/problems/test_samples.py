"""The bundled sample: its sources are in the formats they claim, and its rows are the measured ones."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES = REPOSITORY / "data" / "samples"
KEYS = [
    "example_id", "prompt", "completion", "task", "reward", "generation_ms", "scoring_ms", "total_ms",
    "info", "answer", "speedup_reward", "num_turns", "oai_tools",
]  # fmt: skip


def load(name: str, path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


files = load("sample_files", SAMPLES / "sample_files.py")
build = load("sample_build", SAMPLES / "build.py")
measure = load("measure_samples", REPOSITORY / "bench" / "measure_samples.py")
FOLDERS: list[str] = files.folders()
CANDIDATES = [(folder, number) for folder in FOLDERS for number in files.CANDIDATES]


def test_there_are_thirty_modules_with_two_candidates_each() -> None:
    assert len(FOLDERS) == 30
    for folder in FOLDERS:
        names = sorted(
            path.name for path in (files.MODULES / folder).iterdir() if path.suffix in (".py", ".md")
        )
        assert names == ["candidate_1.md", "candidate_2.md", "module.py"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_module_loads_in_the_kernelbook_convention_and_runs_shrunk_on_the_cpu(
    folder: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    reference = files.read_reference(folder)
    module = measure.import_source(measure.shrink(reference.source, 16), f"shrunk_{folder}", tmp_path)
    init = module.get_init_inputs()
    assert [type(part) for part in init] == [list, dict]
    model = getattr(module, reference.class_name)(*init[0], **init[1])
    inputs = module.get_inputs()
    assert isinstance(inputs, list)
    with torch.no_grad():
        result = model(*inputs)
    assert bool(torch.isfinite(result).all())
    assert result.abs().max() > 0


def constructor(tree: ast.Module, name: str) -> str:
    """The parameters of a class's `__init__` as text; of one that has none, nothing."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    inits = [node for node in found.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
    return ast.unparse(inits[0].args) if inits else ""


@pytest.mark.parametrize(("folder", "number"), CANDIDATES)
def test_a_candidate_has_one_clear_last_answer_with_kernels_and_the_original_constructor(
    folder: str, number: int
) -> None:
    reference, candidate = files.read_reference(folder), files.read_candidate(folder, number)
    tree = ast.parse(candidate.code)
    assert constructor(tree, f"{reference.class_name}New") == constructor(
        ast.parse(reference.source), reference.class_name
    )
    kernels = [
        node for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "triton.jit" for d in node.decorator_list)
    ]  # fmt: skip
    assert kernels
    launched = {ast.unparse(n.value) for n in ast.walk(tree) if isinstance(n, ast.Subscript)}
    assert any(kernel.name in launched for kernel in kernels)
    assert "cuda" not in candidate.code
    before, _, after = candidate.content.rpartition("</answer>")
    assert len(before.partition("<answer>")[0].split()) >= 20, "an answer reasons before it gives code"
    assert not after.strip()


def test_the_answers_come_in_all_the_documented_styles() -> None:
    read = [files.read_candidate(*item) for item in CANDIDATES]
    assert sum("<answer>\n```python\n" in c.content for c in read) == 6
    assert sum(c.content.startswith("<think>") and "</think>" in c.content for c in read) == 4
    assert sum(c.reasoning is not None for c in read) == 4
    assert sum(c.content.count("<answer>") == 2 for c in read) == 2


def test_two_different_modules_share_the_class_name_block() -> None:
    a, b = files.read_reference("Block_a"), files.read_reference("Block_b")
    assert a.class_name == b.class_name == "Block"
    assert a.source != b.source


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("only prose", "0 closing answer tags"),
        ("<answer>x = 1</answer> or <answer>x = 2</answer>", "2 closing answer tags"),
        ("x = 1</answer>", "no opening answer tag"),
        ("<answer>\n```python\nx = 1\n</answer>", "fence inside the answer is not closed"),
    ],
)
def test_an_answer_that_is_missing_or_doubtful_is_an_error(content: str, reason: str) -> None:
    with pytest.raises(files.SampleFileError, match=reason):
        files.extract_code(content)


def test_the_answer_starts_at_the_last_opening_tag_and_loses_its_fence() -> None:
    content = "I use the <answer> tag.\n<answer>\n```python\nx = 1\n```\n</answer>\n"
    assert files.extract_code(content) == "x = 1\n"


def test_a_reasoning_block_becomes_a_field_of_its_own() -> None:
    assert files.split_reasoning("reasoning:\n---\nwhy\n---\nwhat\n") == ("why", "what")
    assert files.split_reasoning("what\n") == (None, "what")
    with pytest.raises(files.SampleFileError, match="not closed"):
        files.split_reasoning("reasoning:\n---\nwhy\n")


def test_shrinking_caps_integers_at_the_top_level_and_leaves_the_rest() -> None:
    source = "BATCH = 64\nSIZE = 100\nSMALL = 3\nRATE = 0.5\nFLAG = True\ndef f():\n    inner = 100\n"
    assert measure.shrink(source, 32).splitlines() == [
        "BATCH = 2", "SIZE = 32", "SMALL = 3", "RATE = 0.5", "FLAG = True", "", "def f():", "    inner = 100",
    ]  # fmt: skip


@pytest.mark.heavy
def test_the_interpreter_tells_a_right_candidate_from_a_wrong_one(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    out = tmp_path / "rows.json"
    command = [sys.executable, "bench/measure_samples.py", "--device", "cpu", "--cap", "16", "--jobs", "2"]
    command += ["--only", "AddScaleClip", "--out", str(out)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, env=dict(os.environ))
    right, wrong = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert (right["candidate"], right["status"], right["speedup"]) == (1, "correct", None)
    assert (wrong["candidate"], wrong["status"]) == (2, "incorrect")
    assert "1 of 256 elements are not finite" in wrong["detail"]


def made_up_measurements() -> dict[str, Any]:
    """Measurements with the right hashes and invented figures: they never leave a test's folder."""
    rows = []
    for folder, number in CANDIDATES:
        status, speedup = ("correct", 1.25) if number == 1 else ("incorrect", None)
        rows.append(
            {
                "module": folder, "candidate": number, "status": status, "detail": "", "eager_us": None,
                "candidate_us": None, "speedup": speedup, "scoring_ms": 5.5,
                "module_sha256": files.sha256(files.read_reference(folder).source),
                "code_sha256": files.sha256(files.read_candidate(folder, number).code),
            }
        )  # fmt: skip
    return {"date": "", "device": "", "versions": {}, "rows": rows}


def test_the_rows_have_the_format_of_base_evals_and_reward_nothing_that_is_wrong(tmp_path: Path) -> None:
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(made_up_measurements()), encoding="utf-8")
    text = build.render(measured)
    assert text == build.render(measured)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["example_id"] for row in rows] == list(range(60))
    for row, (folder, number) in zip(rows, CANDIDATES, strict=True):
        assert list(row) == KEYS
        assert [message["role"] for message in row["prompt"] + row["completion"]] == [
            "system",
            "user",
            "assistant",
        ]
        assert list(row["info"]) == ["module_name", "python_code", "triton_code"]
        assert row["reward"] == row["speedup_reward"] == (1.25 if number == 1 else 0.0)
        assert row["answer"] == files.read_candidate(folder, number).code
        assert row["info"]["triton_code"] == files.read_candidate(folder, 1).code
        assert files.extract_code(row["completion"][0]["content"]) == row["answer"]


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda rows: rows.pop(), "has no row for"),
        (lambda rows: rows[3].update(code_sha256="0"), "was changed after it was measured"),
        (lambda rows: rows[0].update(speedup=None), "was checked but not timed"),
        (lambda rows: rows[0].update(status="fine"), "unknown status 'fine'"),
    ],
)
def test_rows_are_not_built_from_measurements_that_do_not_fit(
    spoil: Any, reason: str, tmp_path: Path
) -> None:
    document = made_up_measurements()
    spoil(document["rows"])
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(build.SourceError, match=reason):
        build.render(measured)


def test_without_measurements_build_says_what_to_run_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "evals.jsonl"
    assert build.main(["--measured", str(tmp_path / "none.json"), "--out", str(out)]) == 1
    assert "bench/measure_samples.py --device cuda" in capsys.readouterr().err
    assert not out.exists()


def test_the_bundled_rows_are_byte_for_byte_what_build_makes_of_the_measurements() -> None:
    measured, evals = SAMPLES / "measured.json", SAMPLES / "evals.jsonl"
    if not measured.exists():
        assert not evals.exists(), "rows without measurements: their rewards would be invented"
        return
    text = evals.read_text(encoding="utf-8")
    assert text == build.render(measured)
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 60
    assert all(list(row) == KEYS for row in rows)


def test_the_measuring_script_imports_nothing_but_the_standard_library_torch_and_triton() -> None:
    names = set()
    for module in (measure, files):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    assert names - set(sys.stdlib_module_names) == {"torch", "triton", "sample_files"}
