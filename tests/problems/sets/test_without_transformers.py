"""Without `transformers`: every other problem is imported and judged, those that need it are named, and come in once it is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmill.cli import main
from kernelmill.problems.sets.folder import read_set
from tests.problems.sets.sets import REFERENCE
from tests.problems.sets.test_import import HUB, LARGE, lay_out
from tests.problems.sets.without import run, without

CANDIDATE = """import torch, triton
import triton.language as tl


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n), mask=i < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        kernel[(1,)](x, x.numel(), BLOCK=64)
        return x
"""
PLAIN = {
    "level1/1_Shifted.py": REFERENCE.format(level=1, number=1),
    "level1/2_Large.py": LARGE,
    # Only the word.
    "level2/1_Named.py": REFERENCE.format(level=2, number=1) + "\n# as transformers do\n",
    "level3/7_Net.py": REFERENCE.format(level=3, number=7),
}
NEEDY = {
    "level4/1_gpt2.py": HUB.format(name="gpt2"),
    "level4/2_opt.py": HUB.format(name="facebook/opt-1.3b").replace("length = 1000", "length = 300"),
    "level4/3_electra.py": HUB.format(name="google/electra-small-discriminator")
    .replace("length = 1000", "length = 100")
    .replace("from transformers import AutoConfig, AutoModelForCausalLM", "import transformers")
    .replace("AutoConfig.", "transformers.AutoConfig.")
    .replace("AutoModelForCausalLM.", "transformers.AutoModelForCausalLM."),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is installed, and no `transformers`: whoever asks for it hears that there is none."""
    folder = without("transformers", tmp_path_factory.mktemp("python") / "packages")
    ask = f"import sys; sys.path.append({str(folder)!r}); import msgspec, torch, transformers"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=240
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'transformers'"
    return folder


@pytest.mark.slow
@pytest.mark.heavy
def test_without_transformers_all_others_are_imported_and_with_it_exactly_the_rest_comes_in(
    packages: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay_out(tmp_path / "KernelBench", PLAIN | NEEDY)
    done = run(packages, "problems", "import", "KernelBench", "--into", "mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = read_set(tmp_path / "mine")
    assert [one.file for one in before.problems] == list(PLAIN)
    assert all(one.full is not None and one.shrunk is not None for one in before.problems)
    said = [line for line in done.stdout.splitlines() if line.startswith("not imported: ")]
    assert len(said) == len(NEEDY)
    for line, file in zip(said, NEEDY, strict=True):
        assert file in line
        assert "it needs transformers, which is not installed" in line
    assert [one.reason for one in before.rejected] == [line.partition(".py: ")[2] for line in said]

    pytest.importorskip("transformers")
    assert main(["problems", "import", "KernelBench", "--into", "mine"]) == 0
    assert f"{len(PLAIN)} known already" in capsys.readouterr().err
    after = read_set(tmp_path / "mine")
    assert [one.file for one in after.problems] == [*PLAIN, *NEEDY]
    assert after.problems[: len(PLAIN)] == before.problems
    assert after.rejected == []
    assert [one.file for one in after.problems if one.random_weights] == list(NEEDY)


@pytest.mark.heavy
def test_without_transformers_a_reference_that_needs_it_is_unsupported_and_one_line_says_why(
    packages: Path, tmp_path: Path
) -> None:
    lay_out(tmp_path, {"ref.py": HUB.format(name="gpt2"), "cand.py": CANDIDATE})
    judged = run(
        packages,
        *("evaluate", "--reference", "ref.py", "--candidate", "cand.py", "--device", "cpu", "--json"),
        cwd=tmp_path,
    )
    assert judged.returncode == 0, judged.stderr
    verdict = json.loads(judged.stdout)
    assert (verdict["status"], verdict["verdict"]) == ("UNSUPPORTED", "inconclusive")
    assert verdict["error"].startswith(
        "the reference cannot be used: it needs transformers, which is not installed: "
    )
    assert "\n" not in verdict["error"]
    admitted = run(packages, "admit", "ref.py", "--json", cwd=tmp_path)
    assert admitted.returncode == 0, admitted.stderr
    row = json.loads(admitted.stdout)
    assert not row["admitted"]
    assert row["reasons"][0].startswith("it cannot be tried: it needs transformers, which is not installed: ")
