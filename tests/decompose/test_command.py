"""`kernelmill decompose` on files: what is written, what is said, and what becomes of models that cannot be decomposed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmill.cli import main
from kernelmill.decompose.command import show
from kernelmill.decompose.write.picture import rich_tree
from tests.conftest import ROOT, command, quick_command
from tests.decompose.models import KERNEL, NET, node, tree, written

Mill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, decomposed without its layers' files, and a kernel beside it."""
    folder = written(
        tmp_path_factory.mktemp("decomposed"), {"set/level3/2_net.py": NET, "set/level1/10_gelu.py": KERNEL}
    )
    done = subprocess.run(
        quick_command(
            "decompose", folder / "set", "-o", folder / "out", "--levels", "fusion,model", "--workers", "2"
        ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    (folder / "said").write_text(done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_decomposed_model_is_proven_and_listed(result: Path) -> None:
    assert (result / "out/manifest.txt").read_text() == "level1/10_gelu\nlevel3/2_net\n"
    model = result / "out/level3/2_net"
    tree = json.loads((model / "decomposition_tree.json").read_text())
    assert tree["metadata"]["verification_status"] == "PASS"
    assert json.loads((model / "verification/test_results.json").read_text())["status"] == "PASS"
    said = (result / "said").read_text()
    assert "level3/2_net  model  1 model, 1 layer, 2 fusions, 7 kernels  PASS  coverage 100%" in said
    hidden = {path.name for path in (result / "out").rglob(".*") if not path.name.endswith(".lock")}
    assert hidden == {".decomposed.jsonl"}


def test_the_source_stays_as_it_is_and_emitted_code_is_formatted(result: Path) -> None:
    from ruff import find_ruff_bin

    model = result / "out/level3/2_net"
    sources = [file for file in model.rglob("*.py") if file.read_text() == NET]
    assert sorted(str(file.relative_to(model)).partition("/")[0] for file in sources) == [
        "level_3_model", "steps", "verification",
    ]  # fmt: skip
    emitted = [file for file in model.rglob("*.py") if file not in sources]
    assert len(emitted) > 10
    checked = [
        find_ruff_bin(),
        "format",
        "--check",
        "--isolated",
        "--no-cache",
        "--line-length",
        "110",
        *emitted,
    ]
    subprocess.run(checked, check=True, capture_output=True)


def test_only_the_levels_asked_for_and_kernels_are_kept_and_the_rest_still_proves(
    result: Path, mill: Mill
) -> None:
    model = result / "out/level3/2_net"
    assert not (model / "level_2_layer").exists()
    assert all((model / name).is_dir() for name in ("level_0_kernel", "level_1_fusion", "level_3_model"))
    assert (
        "Files were kept of these levels: model, fusion, kernel."
        in (model / "decomposition_analysis.md").read_text()
    )
    done = mill("prove", model)
    assert done.returncode == 0, done.stdout


@pytest.mark.heavy
def test_who_is_not_proven_any_more_is_not_listed_and_what_a_killed_process_left_is_not_proven(
    result: Path, tmp_path: Path, mill: Mill
) -> None:
    shutil.copytree(result / "out", tmp_path / "out")
    (tmp_path / "out/level3/2_net").rename(tmp_path / "out/level3/.2_net.tmp")
    done = subprocess.run(
        command("prove", "."),
        cwd=tmp_path / "out/level1/10_gelu",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "10_gelu  0/0    PASS" in done.stdout
    assert mill("prove", "out").stdout.endswith("1 of 1 proven\n")
    assert (tmp_path / "out/manifest.txt").read_text() == "level1/10_gelu\n"
    (kernel,) = (tmp_path / "out/level1/10_gelu/level_0_kernel").iterdir()
    kernel.write_text(kernel.read_text().replace("gelu(", "silu("))
    assert mill("prove", "out").returncode == 1
    assert (tmp_path / "out/manifest.txt").read_text() == ""


def test_the_analysis_tells_a_person_what_was_found(result: Path) -> None:
    text = (result / "out/level3/2_net/decomposition_analysis.md").read_text()
    assert "**model**: it is made of layers." in text
    assert "`conv2d_4x4_k3_p1_fp32` | 4 |" in text
    assert "**PASS** when it was decomposed (2" in text
    assert "\n4 of 4 steps proven, composition PASS, coverage 100%." in text
    assert "  \n" not in text


@pytest.mark.heavy
def test_models_that_cannot_be_decomposed_are_a_line_each_and_the_batch_goes_on(
    tmp_path: Path, mill: Mill
) -> None:
    call = "return torch.nn.functional.gelu(x)"
    files = {
        "good.py": KERNEL,
        "parse.py": "def broken(:\n",
        "none.py": "import torch\n",
        "package.py": "import no_such_package_here\n",
        "forever.py": KERNEL.replace(call, "\n        while True:\n            pass"),
        "decides.py": KERNEL.replace(call, "return torch.relu(x) if x.sum() > 0 else x"),
        "large.py": KERNEL.replace("def forward", "w = torch.ones(50_000_000_000)\n\n    def forward"),
        "leaves.py": KERNEL.replace(call, "import os; os._exit(3)"),
        "latin.py": "",
        "nul.py": "\0",
    }
    written(tmp_path / "set/level1", files)
    (tmp_path / "set/level1/latin.py").write_bytes(b"# \xe4\n")
    written(tmp_path / "set/level_1", {"good.py": KERNEL})
    done = mill("decompose", "set", "-o", "out", "--timeout", 8)
    assert done.returncode == 1
    assert (tmp_path / "out/manifest.txt").read_text() == "level1/good\n"
    assert [path.name for path in (tmp_path / "out/level1").iterdir()] == ["good"]
    for name, reason in {
        "level1/parse": "it does not parse: invalid syntax (line 1)",
        "level1/none": "it defines no class Model that is an nn.Module",
        "level1/package": "it needs no_such_package_here, which is not installed",
        "level1/forever": "it timed out after 8.0 s: --timeout gives it longer",
        "level1/decides": "line 7: Python looks at a tensor's values",
        "level1/large": "out of memory (limit 5.4 GB): it tried to allocate 200.0 GB",
        "level1/leaves": "crashed: exited with status 3",
        "level1/latin": "it is not UTF-8",
        "level1/nul": "it does not parse: source code string cannot contain null bytes\n",
        "level_1/good": "output folder level1/good is already used by set/level1/good.py",
    }.items():
        assert done.stderr.count(f"set/{name}.py: {reason}") == 1, (name, done.stderr)
        assert done.stdout.count(f"set/{name}.py: {reason}") == 1, (name, done.stdout)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.heavy
def test_an_interrupted_batch_leaves_whole_folders_only_and_goes_on_after_them(
    tmp_path: Path, how: signal.Signals
) -> None:
    forever = KERNEL.replace("return torch.nn.functional.gelu(x)", "\n        while True:\n            pass")
    written(tmp_path / "set", {"1_good.py": KERNEL, "2_forever.py": forever, "3_forever.py": forever})
    running = subprocess.Popen(
        command("decompose", "set", "-o", "out", "--workers", "1"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    said = (line for line in running.stderr if " models decomposed" not in line)  # on a slow machine
    assert "models/1_good" in next(said)
    time.sleep(0.5)
    running.send_signal(how)
    _, rest = running.communicate(timeout=240)
    if how == signal.SIGINT:
        lines = [line for line in rest.splitlines() if " models decomposed" not in line]
        assert (running.returncode, lines) == (130, ["kernelmill: interrupted"])
        assert (tmp_path / "out/manifest.txt").read_text() == "models/1_good\n"
    written(tmp_path / "set", {"2_forever.py": KERNEL.replace("gelu", "relu"), "3_forever.py": "x = 1\n"})
    done = subprocess.run(
        command("decompose", "set", "-o", "out", "--workers", "1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    first, *_ = done.stderr.splitlines()
    assert first.endswith("PASS  coverage 100%  done before")
    assert sorted(path.name for path in (tmp_path / "out/models").iterdir()) == ["1_good", "2_forever"]
    assert (tmp_path / "out/manifest.txt").read_text() == "models/1_good\nmodels/2_forever\n"


def test_the_script_takes_a_part_of_a_level(tmp_path: Path) -> None:
    files = {f"level1/{number}_net.py": "def (" for number in (1, 2, 10)} | {"level2/1_net.py": "def ("}
    written(tmp_path / "data/kernelbench", files)
    script = [sys.executable, str(ROOT / "scripts/batch_decompose.py"), "--level", "1", "--start"]
    done = subprocess.run([*script, "1", "--count", "1"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "data/kernelbench/level1/2_net.py: it does not parse: invalid syntax (line 1)\n"
    assert (tmp_path / "output/manifest.txt").read_text() == ""
    done = subprocess.run([*script, "3", "--data", "data"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("kernelmill: data: no .py file in it")
    done = subprocess.run([*script, "0", "--data", "none"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "none: no such folder: name a set of problems with --data" in done.stderr
    help_text = subprocess.run([*script, "0", "--help"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "--data FOLDER" in help_text
    assert "--workers N" in help_text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["set", "--start", "1"], "1 model in what was named: none from --start 1 on"),
        (["set", "--level", "2"], "no models of level 2 in what was named"),
        (["empty"], "empty: no .py file in it"),
        (["notes.txt"], "notes.txt: expected a .py file with a class Model"),
        (
            ["set", "--levels", "kernels"],
            "invalid part level 'kernels'; expected levels of parts, 1 kernel, 2 fusion, 3 layer, 4 model",
        ),
        (["set", "-o", "problems"], "problems holds a set of problems: name another folder with -o"),
        (["set", "-o", "notes.txt"], "notes.txt is not a folder"),
        (["set", "-o", "notes.txt/out"], "notes.txt/out/manifest.txt cannot be written (Not a directory)"),
        (["notes.py", "--graph", "g.json"], "notes.py: it does not parse"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, mill: Mill, arguments: list[str], said: str) -> None:
    written(
        tmp_path,
        {
            "set/a.py": KERNEL,
            "notes.txt": "",
            "notes.py": "def (",
            "problems/manifest.txt": "level1/1_ReLU.py\n",
        },
    )
    os.mkdir("empty")
    done = mill("decompose", *arguments)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [[], ["set", "--init", "5"], ["set", "--set", "a=1"], ["set", "--module", "a:B"]]
)
def test_options_that_do_not_go_together_are_wrong_usage(mill: Mill, arguments: list[str]) -> None:
    done = mill("decompose", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "(see kernelmill decompose --help)" in done.stderr


def test_no_line_of_the_hierarchy_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = "a_name_that_is_longer_than_a_narrow_terminal_is_wide"
    monkeypatch.setenv("COLUMNS", "40")
    show(rich_tree(tree(node("net", "model", (long,)), node(long, "kernel"))))
    assert f"{long}  2x3 float32 -> 2x3 float32, scalar int64\n" in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    show(rich_tree(tree(node("net", "model", (long,)), node(long, "kernel"))))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= 40
    assert long in "".join(line.lstrip("└─ ").rstrip() for line in lines)
    assert lines[-1].endswith("int64")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["decompose", "--help"])
    text = capsys.readouterr().out
    assert all(
        f"--{name}" in text for name in ("output", "workers", "timeout", "levels", "level", "start", "count")
    )
