"""A batch without its processes: what is tried again, what is replaced, and what a worker may not send."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.problem_layout import natural
from kernelmill.decompose import batch, model_folder, resume
from kernelmill.decompose.batch import Decomposer, Outcome
from kernelmill.decompose.errors import BadSource
from kernelmill.decompose.model_folder import unpacked
from kernelmill.decompose.prove.prover import Proof
from kernelmill.decompose.sources.problem_files import ModelFile, model_files
from kernelmill.errors import OutputError
from tests.decompose.models import KERNEL, worker_files, written


def packed(files: Any) -> dict[str, Any]:
    return {"packed": base64.b64encode(zlib.compress(json.dumps(files).encode())).decode()}


class Played:
    """In place of the processes: `files` come back, the proofs are those of `statuses` in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *statuses: str) -> None:
        self.requests: list[dict[str, Any]] = []
        self.files: Any = worker_files(KERNEL)
        self.plain: dict[str, str] = {}
        """What differs where no size is symbolic."""
        self.kind = "ok"
        self.summary: dict[str, Any] = {"level_files": {"faults": []}, "tree_faults": []}
        self.begun = True
        """Whether the claims of a proof ran at all."""
        self._statuses = list(statuses)
        monkeypatch.setattr(batch, "Sandbox", lambda *_, **__: self)
        monkeypatch.setattr(batch, "Prover", lambda *_: self)
        monkeypatch.setattr(batch, "prove_folder", self._prove)

    def __enter__(self) -> Played:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def start(self, *_: str) -> None:
        pass

    def close(self) -> None:
        pass

    def what_is_missing(self) -> list[str]:
        return []

    def run_sync(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(request)
        files = self.files if request["symbolic_sizes"] else self.files | self.plain
        return {"kind": self.kind, "result": packed(files), "type": "CannotRecord", "message": "it will not"}

    def _prove(self, folder: Path, _: object) -> Proof:
        status = self._statuses.pop(0)
        file = folder / "decomposition_tree.json"
        tree = json.loads(file.read_text())
        tree["metadata"] |= {"verification_status": status, "source_file": self.requests[-1]["source_file"]}
        file.write_text(json.dumps(tree))
        result = {"status": status, "anticheat": {"status": "PASS" if self.begun else "NOT_RUN"}}
        files = {"test_results.json": result, "step_verification_summary.json": self.summary}
        written(folder / "verification", {name: json.dumps(value) for name, value in files.items()})
        return Proof(folder, folder.name, status, [] if status == "PASS" else ["it differs"])


def decompose(*models: ModelFile, force: bool = False) -> list[Outcome]:
    with Decomposer(Path("out"), 1, 10.0, force=force) as decomposer:
        return decomposer.run(models, lambda _: None)


def source(name: str = "net.py", code: str = KERNEL) -> ModelFile:
    written(Path(), {name: code})
    return ModelFile(Path(name), None)


def test_a_proof_that_fails_is_tried_once_more_with_sizes_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, "FAIL", "PASS")
    played.plain = {"level_0_kernel/gelu_fp32.py": "x = 2\n"}
    assert decompose(source())[0].status == "PASS"
    assert [request["symbolic_sizes"] for request in played.requests] == [True, False]
    assert Path("out/models/net/level_0_kernel/gelu_fp32.py").read_text() == "x = 2\n"
    assert Path("out/manifest.txt").read_text() == "models/net\n"


@pytest.mark.parametrize(
    ("status", "plain", "begun", "summary"),
    [
        ("FAIL", {}, True, {}),  # no size was guessed
        ("FAIL", {"steps/step_1_net/refactored.py": "x = 2\n"}, True, {}),  # no text of what failed
        ("ERROR", {"level_0_kernel/gelu_fp32.py": "x = 2\n"}, False, {}),  # no time, or no memory
        ("FAIL", {"level_0_kernel/gelu_fp32.py": "x = 2\n"}, True, {"tree_faults": ["a file of nobody"]}),
        (
            "FAIL",
            {"level_0_kernel/gelu_fp32.py": "x = 2\n"},
            True,
            {"level_files": {"faults": ["level_1_fusion/a.py does not run: no"]}},
        ),
    ],
)
def test_a_proof_is_not_tried_again_where_sizes_cannot_be_why_it_failed(
    monkeypatch: pytest.MonkeyPatch, status: str, plain: dict[str, str], begun: bool, summary: dict[str, Any]
) -> None:
    played = Played(monkeypatch, status)  # a second proof would find none to give
    played.plain, played.begun = plain, begun
    played.summary |= summary
    assert decompose(source())[0].status == "FAIL"


def test_numbers_that_do_not_fit_are_tried_again_with_sizes_as_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Played(monkeypatch, "ERROR", "PASS").plain = {"level_0_kernel/gelu_fp32.py": "x = 2\n"}
    assert decompose(source())[0].status == "PASS"


def test_what_a_killed_process_left_is_removed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, "PASS")
    left = ["models/.net.tmp", "level3/.5_AlexNet.tmp", "level3/.5_AlexNet.old"]
    mine = ["mine/.net.tmp", "models/notes.tmp", "level3/.git"]
    written(Path("out"), {f"{folder}/a.py": "" for folder in [*left, *mine]})
    decompose(source())
    assert [folder for folder in [*left, *mine] if Path("out", folder).exists()] == mine


def test_a_model_whose_proof_fails_keeps_its_folder_and_is_not_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Played(monkeypatch, "FAIL")
    outcome = decompose(source())[0]
    assert outcome.status == "FAIL"
    assert "**FAIL**" in Path("out/models/net/decomposition_analysis.md").read_text()
    assert Path("out/manifest.txt").read_text() == ""


def test_emitted_files_are_formatted_and_the_source_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = KERNEL.replace("[torch", "[ torch")
    Played(monkeypatch, "PASS").files = worker_files(odd)
    decompose(source(code=odd))
    assert Path("out/models/net/verification/original.py").read_text() == odd
    assert Path("out/models/net/verification/composition_test.py").read_text() == "x = [1]\n"
    assert "[torch" in Path("out/models/net/level_0_kernel/gelu_fp32.py").read_text()


def test_a_result_of_the_same_source_is_replaced_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, "PASS", "PASS")
    decompose(source())
    written(Path("out/models/net"), {"level_0_kernel/old.py": "x = 1\n"})
    decompose(source(code=KERNEL + "# changed\n"))
    assert not Path("out/models/net/level_0_kernel/old.py").exists()
    assert sorted(path.name for path in Path("out/models").iterdir()) == ["net"]


def test_what_is_proven_is_not_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, "PASS", "FAIL", "PASS")
    models = [source(), source("bad.py")]
    assert [one.status for one in decompose(*models)] == ["PASS", "FAIL"]
    outcomes = decompose(*models)
    assert [(one.status, one.before) for one in outcomes] == [("PASS", True), ("PASS", False)]
    assert [request["name"] for request in played.requests] == [
        "net",
        "bad",
        "bad",
        "bad",
    ]  # with guessed sizes and without, then anew
    assert outcomes[0].raw == json.loads(Path("out/models/net/decomposition_tree.json").read_text())
    proof = outcomes[0].proof
    assert proof is not None
    assert (proof.folder, proof.status) == (Path("out/models/net"), "PASS")
    assert Path("out/manifest.txt").read_text().splitlines() == ["models/bad", "models/net"]


@pytest.mark.parametrize("file", ["level_0_kernel/gelu_fp32.py", "verification/weight_map.json"])
def test_a_proven_model_whose_files_were_changed_since_is_done_again(
    monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    played = Played(monkeypatch, "PASS", "PASS")
    decompose(source())
    path = Path("out/models/net") / file
    before = path.read_bytes()
    path.write_bytes(before + b" ")
    assert not decompose(source())[0].before
    assert path.read_bytes() == before
    assert len(played.requests) == 2


def test_a_model_that_failed_a_later_proof_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, "PASS", "FAIL", "PASS")
    decompose(source())
    played._prove(Path("out/models/net"), None)
    assert not decompose(source())[0].before


@pytest.mark.parametrize("other", [{"force": True}, {"code": KERNEL + "# changed\n"}])
def test_another_source_and_force_do_a_proven_model_again(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    Played(monkeypatch, "PASS", "PASS")
    decompose(source())
    again = decompose(source(code=other.get("code", KERNEL)), force=other.get("force", False))
    assert not again[0].before


def test_another_version_of_torch_does_a_proven_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, "PASS", "PASS")
    decompose(source())
    monkeypatch.setattr(resume, "_version", lambda package: f"another {package}")
    assert not decompose(source())[0].before


def test_a_record_torn_by_a_crash_costs_its_own_model_only(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, "PASS", "PASS", "PASS")
    models = [source(), source("other.py")]
    decompose(*models)
    record = Path("out") / resume.FILE
    record.write_bytes(record.read_bytes()[:-40])
    assert [one.before for one in decompose(*models)] == [True, False]
    assert [one.before for one in decompose(*models)] == [True, True]
    assert len(played.requests) == 3


def test_an_earlier_result_goes_when_the_model_cannot_be_decomposed_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = Played(monkeypatch, "PASS")
    decompose(source())
    played.kind = "error"
    outcome = decompose(source(code=KERNEL + "# changed\n"))[0]
    assert (outcome.status, outcome.reason) == ("ERROR", "it will not")
    assert not Path("out/models/net").exists()
    assert Path("out/manifest.txt").read_text() == ""


@pytest.mark.parametrize("there", [{"notes.txt": "mine"}, {"decomposition_tree.json": "{}"}])
def test_a_folder_that_is_no_result_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, str]
) -> None:
    played = Played(monkeypatch)
    written(Path("out/models/net"), there)
    outcome = decompose(source())[0]
    assert outcome.status == "ERROR"
    assert "is not a decomposed model: remove it" in outcome.reason
    assert [path.name for path in Path("out/models/net").iterdir()] == list(there)
    assert played.requests == []


def test_the_result_of_another_source_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, "PASS")
    decompose(source("a/net.py"))
    outcome = decompose(source("b/net.py", KERNEL + "# another\n"))[0]
    assert "is the decomposition of a/net.py" in outcome.reason
    assert Path("out/models/net").is_dir()


def test_two_batches_do_not_write_to_one_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Decomposer(Path("out"), 1, 10.0),
        pytest.raises(OutputError, match="another process is writing to out"),
    ):
        decompose(source())


def test_a_formatter_that_finds_no_python_fails_the_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)
    played.files = worker_files(KERNEL) | {"level_0_kernel/odd.py": "def ("}
    assert "an emitted file is not valid Python" in decompose(source())[0].reason
    assert list(Path("out/models").iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "../x.py",
        "/etc/x.py",
        "level_0_kernel/../x.py",
        "steps/step_1_a/../x.py",
        "x.py",
        "level_0_kernel/x.sh",
        "level_0_kernel/x.py\n",
    ],
)
def test_a_worker_cannot_name_files_elsewhere(path: str) -> None:
    with pytest.raises(BadSource, match="not part of a decomposed model"):
        unpacked(packed(worker_files(KERNEL) | {path: ""}))


@given(st.dictionaries(st.text(), st.none() | st.text() | st.lists(st.text())))
def test_a_reply_that_is_no_model_is_unusable(result: dict[str, Any]) -> None:
    for reply in (result, packed(result), {"packed": result.get("packed")}):
        with pytest.raises(BadSource):
            unpacked(reply)


def test_files_that_unpack_to_more_than_the_limit_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_folder, "MAX_FILES", 1 << 20)
    bomb = zlib.compress(b" " * ((1 << 20) + 1))
    with pytest.raises(BadSource, match="more than 1 MB"):
        unpacked({"packed": base64.b64encode(bomb).decode()})


def test_the_files_come_back_as_they_were_sent() -> None:
    assert unpacked(packed(worker_files(KERNEL))) == worker_files(KERNEL)


def test_folders_are_read_by_level_and_number_and_files_once(tmp_path: Path) -> None:
    names = [
        "level2/1_b.py",
        "level1/10_a.py",
        "level1/2_a.py",
        "level10/1_c.py",
        "level1/__init__.py",
        "setup.py",
    ]
    written(tmp_path / "checkout/KernelBench", dict.fromkeys(names, ""))
    models = model_files([tmp_path / "checkout", tmp_path / "checkout/KernelBench/level1/2_a.py"])
    assert [model.output_path for model in models] == [
        "level1/2_a",
        "level1/10_a",
        "level2/1_b",
        "level10/1_c",
    ]
    assert model_files([tmp_path / "checkout/KernelBench/setup.py"])[0].output_path == "models/setup"


NAMES = st.lists(st.text() | st.from_regex(r"\d{1,3}_[ab]?"))


@given(NAMES.flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))))
def test_the_order_of_names_does_not_hang_on_how_they_were_found(given: tuple[list[str], list[str]]) -> None:
    assert sorted(given[0], key=natural) == sorted(given[1], key=natural)
    assert sorted(["10_a", "9_b"], key=natural) == ["9_b", "10_a"]
