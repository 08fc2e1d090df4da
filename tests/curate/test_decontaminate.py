from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmill.base.rows import Drop, Row
from kernelmill.curate.decontaminate import Decontaminate
from kernelmill.errors import ConfigError, SourceError
from kernelmill.problems.benchmark import Benchmark, read_benchmarks
from kernelmill.testing.disguises import renamed
from kernelmill.testing.fake_hub import FakeHub
from tests.conftest import ROOT, evals_row, read_rows, write_rows

Mill = Callable[..., Any]

RELU = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """ReLU."""
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

batch_size = 4096

def get_inputs():
    return [torch.rand(batch_size, 8)]

def get_init_inputs():
    return []
'''
GEMM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        x = self.linear(x)
        x = torch.nn.functional.gelu(x)
        x = torch.clamp(x, min=0, max=1)
        return torch.softmax(x, dim=1)
"""
HONEST = GEMM.replace("clamp(x, min=0, max=1)", "mean(x, dim=2)").replace("Linear", "Conv2d")
WRAPPED = (
    GEMM.replace("class Model", "class Core")
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = Core(4, 4)

    def forward(self, größe):
        return torch.tanh(self.core(größe))
"""
)


def row(n: int, code: str) -> dict[str, Any]:
    return evals_row(n, info={"module_name": f"Net{n}", "python_code": code, "triton_code": "kernel"})


ROWS = [row(1, renamed(RELU)), row(2, HONEST), row(3, WRAPPED), row(4, GEMM)]
RELU_FOUND = {"problem": "level1/19_ReLU", "how": "same code", "share": 1.0}


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """A checkout of a benchmark, with files around the problems that are none."""
    for name, code in {
        "KernelBench/level1/19_ReLU.py": RELU,
        "KernelBench/level2/99_Gemm.py": GEMM,
        "KernelBench/tools/run.py": "import sys\n",
        "src/eval.py": "class Evaluator:\n    pass\n",
        "setup.py": "def setup(): pass\n",
    }.items():
        (tmp_path / "kb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "kb" / name).write_text(code, encoding="utf-8")
    return tmp_path / "kb"


def columns(path: Path, name: str = "kernelbench") -> list[Any]:
    return [row[f"contaminated_{name}"] for row in read_rows(path)]


def test_rows_are_marked_with_the_problem_they_hold(tmp_path: Path, bench: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    done = mill("decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", bench)
    assert done.returncode == 0, done.stderr
    gemm = {"problem": "level2/99_Gemm", "how": "n-grams", "share": 1.0}
    assert columns(tmp_path / "out.jsonl") == [RELU_FOUND, None, gemm, {**gemm, "how": "same code"}]
    for before, after in zip((tmp_path / "rows.jsonl").read_bytes().splitlines(), (tmp_path / "out.jsonl").read_bytes().splitlines(), strict=True):  # fmt: skip
        assert after.startswith(before[:-1] + b',"contaminated_kernelbench":')
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    at = lines.index("benchmark kernelbench, 2 problems")
    assert lines[at : at + 4] == [
        "benchmark kernelbench, 2 problems",
        "same code 2 rows",
        "n-grams 1 rows",
        "hit 2 problems: level2/99_Gemm (2), level1/19_ReLU (1)",
    ]
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    found = manifest["benchmarks"]["kernelbench"]
    assert found["source"] == {"kind": "folder", "path": f"{bench}/KernelBench"}
    assert (found["problems"], found["problems_hit"], len(found["sha256"])) == (2, 2, 64)
    assert found["rows"] == {"same_code": 2, "n_grams": 1}
    assert found["most_hit"] == {"level2/99_Gemm": 2, "level1/19_ReLU": 1}
    assert manifest["n_grams"] == {"n": 3, "fewest_runs": 3, "share": 0.8}


def test_dropped_rows_name_the_problem_and_the_others_keep_their_bytes(
    tmp_path: Path, bench: Path, mill: Mill
) -> None:
    source = write_rows(tmp_path / "rows.jsonl", ROWS)
    done = mill("decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", bench, "--drop")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_bytes() == source.read_bytes().splitlines(keepends=True)[1]
    assert [bad["reason"] for bad in read_rows(tmp_path / "out.rejected.jsonl")] == [
        "kernelbench level1/19_ReLU: the same code",
        "kernelbench level2/99_Gemm: 100% of its n-grams",
        "kernelbench level2/99_Gemm: the same code",
    ]
    assert "contaminated (kernelbench)" in done.stdout


def test_running_it_again_on_its_own_output_changes_nothing(tmp_path: Path, bench: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    both = ("--against", bench, "--against", "bundled:problems")
    assert mill("decontaminate", "rows.jsonl", "-o", "one.jsonl", *both).returncode == 0
    assert mill("decontaminate", "one.jsonl", "-o", "two.jsonl", *both).returncode == 0
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
    # Against another set, the column of the first stays what it was.
    assert (
        mill("decontaminate", "one.jsonl", "-o", "three.jsonl", "--against", f"mine={bench}").returncode == 0
    )
    assert columns(tmp_path / "three.jsonl") == columns(tmp_path / "three.jsonl", "mine")
    assert list(read_rows(tmp_path / "three.jsonl")[0])[-1] == "contaminated_mine"


def test_a_config_file_lists_benchmarks_and_a_manifest_repeats_the_run(
    tmp_path: Path, bench: Path, mill: Mill
) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "c.toml").write_text(
        f'[decontaminate]\nsource = "rows.jsonl"\noutput = "out.jsonl"\nagainst = ["{bench}", "own=bundled:problems"]\n'
    )
    done = mill("decontaminate", "@", "c.toml")
    assert done.returncode == 0, done.stderr
    before = (tmp_path / "out.jsonl").read_bytes()
    assert list(read_rows(tmp_path / "out.jsonl")[0])[-2:] == ["contaminated_kernelbench", "contaminated_own"]
    shutil.copy(tmp_path / "out.manifest.json", tmp_path / "again.json")
    assert mill("decontaminate", "@", "again.json").returncode == 0
    assert (tmp_path / "out.jsonl").read_bytes() == before
    # A variable holds one benchmark.
    done = mill("decontaminate", "rows.jsonl", "-o", "env.jsonl", env={"KERNELMILL_AGAINST": str(bench)})
    assert done.returncode == 0, done.stderr
    assert columns(tmp_path / "env.jsonl")[0] == RELU_FOUND


def rl_row(level: int, number: str, name: str, code: str) -> dict[str, Any]:
    extra = {"level": level, "problem_id": number, "problem_name": name, "data_source": "kernel_bench_triton"}
    return {
        "prompt": [{"role": "user", "content": "x"}],
        "label": code,
        "extra_info": extra,
        "instance_id": "i",
    }


@pytest.mark.parametrize(
    ("given_row", "label"),
    [
        ({"code": RELU, "level": 1, "name": "19_ReLU", "problem_id": 19}, "level1/19_ReLU"),
        ({"code": RELU, "level": 1.0, "name": "19_ReLU", "problem_id": 19.0}, "level1/19_ReLU"),
        (rl_row(1, "19", "ReLU", RELU), "level1/19_ReLU"),
        ({"python_code": RELU, "entry_point": "ReLU", "module_name": "ReLU", "uuid": 7}, "7_ReLU"),
        ({"prompt": "Write it.", "module_name": "ReLU", "python_code": RELU}, "ReLU"),
        (row(5, RELU), "5_Net5"),
        ({"code": RELU}, "set.jsonl:1"),
    ],
    ids=["KernelBench", "with gaps", "RL prompts", "KernelBook", "specification", "evals", "bare"],
)
def test_every_kind_of_row_can_be_a_benchmark(tmp_path: Path, given_row: dict[str, Any], label: str) -> None:
    write_rows(tmp_path / "set.jsonl", [given_row])
    (benchmark,) = read_benchmarks(("set.jsonl",), 0.8, None)
    assert (benchmark.name, benchmark.labels) == ("set", [label])
    table = pa.Table.from_pylist([{**given_row, "licenses": ["mit"]}])
    pq.write_table(table, tmp_path / "set.parquet")
    assert len(read_benchmarks(("b=set.parquet",), 0.8, None)[0].labels) == 1


@pytest.mark.parametrize(
    "given_row",
    [
        {"python_code": RELU, "entry_point": "ReLU", "uuid": 3, "synthetic": False},
        {"prompt": "Write it.", "module_name": "ReLU", "python_code": RELU},
        {"code": RELU, "level": 1, "name": "x"},
        evals_row(1, info=json.dumps({"module_name": "a", "python_code": RELU, "triton_code": None})),
    ],
    ids=["KernelBook", "specification", "KernelBench", "info as text"],
)
def test_every_kind_of_row_can_be_checked(tmp_path: Path, bench: Path, given_row: dict[str, Any]) -> None:
    assert marked([given_row], read_benchmarks((str(bench),), 0.8, None)) == [[RELU_FOUND]]


def marked(rows: list[dict[str, Any]], benchmarks: list[Benchmark]) -> list[list[Any]]:
    """The columns of each row, without the command around the stage."""
    taken = take(rows, benchmarks)
    assert all(isinstance(out, bytes) for out in taken)
    names = [f"contaminated_{benchmark.name}" for benchmark in benchmarks]
    return [[json.loads(out)[name] for name in names] for out in taken if isinstance(out, bytes)]


def take(rows: list[dict[str, Any]], benchmarks: list[Benchmark], drop: bool = False) -> list[bytes | Drop]:
    with Decontaminate(benchmarks, 0.8, drop) as stage:
        given_rows = [Row(n, f"x:{n}", json.dumps(row).encode()) for n, row in enumerate(rows)]
        for one in given_rows:
            stage.scan(one)
        stage.decide()
        return [stage.take(one) for one in given_rows]


@given(st.permutations(range(8)))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_of_rows_does_not_matter(bench: Path, order: list[int]) -> None:
    rows = [*ROWS, *ROWS[:2], row(7, "class Model(:"), row(8, "")]
    benchmarks = read_benchmarks((str(bench), "bundled:problems"), 0.8, None)
    straight = marked(rows, benchmarks)
    assert marked([rows[at] for at in order], benchmarks) == [straight[at] for at in order]


def test_a_row_may_be_in_several_benchmarks(bench: Path) -> None:
    benchmarks = read_benchmarks((str(bench), f"other={bench}"), 0.8, None)
    assert marked(ROWS[:2], benchmarks) == [[RELU_FOUND, RELU_FOUND], [None, None]]
    dropped = take(ROWS[:1], benchmarks, drop=True)[0]
    assert isinstance(dropped, Drop)
    assert dropped.reason == "kernelbench level1/19_ReLU: the same code; other level1/19_ReLU: the same code"


def test_what_is_not_python_is_counted_and_told(tmp_path: Path, bench: Path, mill: Mill) -> None:
    (bench / "KernelBench/level1/20_Broken.py").write_text("class Model(:\n    print 'x'\n")
    (bench / "KernelBench/level1/__init__.py").write_text("")
    rows = [row(1, "class Model(:\n  print 'x'"), row(2, "class Other(:"), row(3, HONEST)]
    write_rows(tmp_path / "rows.jsonl", rows)
    done = mill("decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", bench)
    assert done.returncode == 0, done.stderr
    assert "1 not Python, compared as text only: level1/20_Broken" in done.stderr
    assert "1 left out, without a class or a function: level1/__init__" in done.stderr
    assert "2 rows, compared as text only" in done.stdout
    assert columns(tmp_path / "out.jsonl") == [{**RELU_FOUND, "problem": "level1/20_Broken"}, None, None]
    manifest = json.loads((tmp_path / "out.manifest.json").read_text())
    assert manifest["rows_not_python"] == 2
    assert manifest["benchmarks"]["kernelbench"]["not_python"] == ["level1/20_Broken"]
    assert manifest["benchmarks"]["kernelbench"]["empty"] == ["level1/__init__"]


def test_a_benchmark_without_problems_ends_the_command(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "none.jsonl").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__init__.py").write_text("import torch\n")
    write_rows(tmp_path / "other.jsonl", [{"text": "no code here"}])
    for against, message in (
        ("none.jsonl", "none.jsonl: no problem in it"),
        ("folder", "folder: no problem in it"),
        (
            "other.jsonl",
            "other.jsonl:1: no problem (looked in info.python_code, python_code, code and label)",
        ),
        ("missing", "missing: no such file or folder"),
    ):
        done = mill("decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", against)
        assert done.returncode == 1
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_the_output_may_not_be_the_benchmark(tmp_path: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", ROWS)
    write_rows(tmp_path / "set.jsonl", [{"code": RELU}])
    done = mill("decontaminate", "rows.jsonl", "-o", "set.jsonl", "--against", "set.jsonl")
    assert done.returncode == 1
    assert "part of the benchmark set" in done.stderr
    assert read_rows(tmp_path / "set.jsonl") == [{"code": RELU}]


def test_a_row_without_a_module_stops_or_is_rejected(tmp_path: Path, bench: Path, mill: Mill) -> None:
    write_rows(tmp_path / "rows.jsonl", [ROWS[0], {"text": "hello"}, ROWS[1]])
    flags = ("decontaminate", "rows.jsonl", "-o", "out.jsonl", "--against", bench)
    done = mill(*flags)
    assert done.returncode == 1
    assert "rows.jsonl:2" in done.stderr
    assert mill(*flags, "--on-bad-row", "reject").returncode == 0
    assert columns(tmp_path / "out.jsonl") == [RELU_FOUND, None]
    assert [bad["index"] for bad in read_rows(tmp_path / "out.rejected.jsonl")] == [1]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("kb", "kernelbench"),
        ("kb/KernelBench", "kernelbench"),
        ("kb/KernelBench/level1", "kernelbench_level1"),
        ("kb/KernelBench/level1/19_ReLU.py", "19_relu"),
        ("Größte Probleme.jsonl", "gr_te_probleme"),
        ("bundled:problems", "bundled_problems"),
        ("v2.1=kb", None),
        ("mine=kb", "mine"),
    ],
)
def test_a_benchmark_is_called_after_its_source_or_as_told(
    tmp_path: Path, bench: Path, place: str, name: str | None
) -> None:
    write_rows(tmp_path / "Größte Probleme.jsonl", [{"code": RELU}])
    if (
        name is None
    ):  # what stands before `=` is no name, so all of it is a path, and there is none of the sort
        with pytest.raises(SourceError, match="no such file"):
            read_benchmarks((place,), 0.8, None)
        return
    assert read_benchmarks((place,), 0.8, None)[0].name == name


def test_two_benchmarks_of_one_name_are_refused(bench: Path) -> None:
    with pytest.raises(ConfigError, match=r"both called kernelbench: give one another name"):
        read_benchmarks(("kb", "kb/KernelBench"), 0.8, None)
    with pytest.raises(ConfigError, match="cannot derive a name"):
        Path("…").mkdir()
        (Path("…") / "1_a.py").write_text(RELU)
        read_benchmarks(("…",), 0.8, None)


def test_a_benchmark_on_the_hub_is_read_whole_and_its_revision_noted(
    tmp_path: Path, mill_process: Mill
) -> None:
    def parquet(level: int, name: str, number: int, code: str) -> bytes:
        buffer = io.BytesIO()
        one = {"code": code, "level": level, "name": f"{number}_{name}", "problem_id": number}
        pq.write_table(pa.Table.from_pylist([one]), buffer)
        return buffer.getvalue()

    write_rows(tmp_path / "rows.jsonl", ROWS)
    with FakeHub() as hub:
        sha = hub.put("dataset", "ScalingIntelligence/KernelBench", {
            "data/level_1-00000-of-00001.parquet": parquet(1, "ReLU", 19, RELU),
            "data/level_2-00000-of-00001.parquet": parquet(2, "Gemm", 99, GEMM),
        })  # fmt: skip
        # KernelBench on the Hub is the default.
        done = mill_process("decontaminate", "rows.jsonl", "-o", "out.jsonl", env=hub.environment())
        missing = mill_process(
            "decontaminate", "rows.jsonl", "-o", "x.jsonl", "--against", "org/none", env=hub.environment()
        )
    assert done.returncode == 0, done.stderr
    assert [found and found["problem"] for found in columns(tmp_path / "out.jsonl")] == [
        "level1/19_ReLU", None, "level2/99_Gemm", "level2/99_Gemm",
    ]  # fmt: skip
    source = json.loads((tmp_path / "out.manifest.json").read_text())["benchmarks"]["kernelbench"]["source"]
    assert (source["repo"], source["revision"], source["splits"]) == (
        "ScalingIntelligence/KernelBench", sha, ["level_1", "level_2"],
    )  # fmt: skip
    assert missing.returncode == 1
    assert "org/none" in missing.stderr


def test_the_bundled_samples_are_checked_in_worker_processes_too(tmp_path: Path, mill: Mill) -> None:
    """Enough text that other processes are given some of it: their fingerprints must be those of this one."""
    samples = (ROOT / "data/samples/evals.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in samples]
    many = []
    for n in range(12):
        for one in rows:
            info = {**one["info"], "python_code": f"{one['info']['python_code']}\nN{n} = {n}\n"}
            many.append({**one, "info": info})
    write_rows(tmp_path / "many.jsonl", many)
    done = mill("decontaminate", "many.jsonl", "-o", "out.jsonl", "--against", "p=bundled:problems")
    assert done.returncode == 0, done.stderr
    found = columns(tmp_path / "out.jsonl", "p")
    assert found == found[: len(rows)] * 12
    assert {one["problem"] for one in found if one} == {
        "level1/2_ScaledTanh",
        "level2/2_Matmul_Scale_Softmax",
    }
