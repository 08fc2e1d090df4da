"""What the sandbox and the orchestrator know of a GPU comes from its vendor's entry."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kernelmill.evaluate.gpu.gpu_memory import memory_was_short
from kernelmill.sandbox import confine, gpu_vendors
from kernelmill.sandbox.gpu_vendors import NVIDIA, judge_environment, vendor_here, visible_gpus


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with three GPUs of another vendor, and none of NVIDIA's."""

    def device_files() -> dict[int, str]:
        return {int(path.name[4:]): str(path) for path in tmp_path.glob("card*")}

    for number in range(3):
        (tmp_path / f"card{number}").touch()
    (tmp_path / "control").touch()
    other = dataclasses.replace(
        NVIDIA,
        what="other",
        device_files=device_files,
        visible="OTHER_VISIBLE",
        environment={"OTHER_QUEUES": "1"},
        writes=(str(tmp_path / "control"), str(tmp_path / "not_there")),
        out_of_memory=("no cards left",),
    )
    absent = dataclasses.replace(NVIDIA, device_files=dict)
    monkeypatch.setattr(gpu_vendors, "VENDORS", (absent, other))
    monkeypatch.setattr("kernelmill.evaluate.gpu.gpu_memory.VENDORS", (absent, other))
    return tmp_path


def test_the_vendor_with_devices_is_asked(cards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert vendor_here().what == "other"
    monkeypatch.delenv("OTHER_VISIBLE", raising=False)
    assert visible_gpus() == [0, 1, 2]
    monkeypatch.setenv("OTHER_VISIBLE", "2, 0,7,GPU-x")
    assert visible_gpus() == [2, 0]
    monkeypatch.setenv("OTHER_VISIBLE", "")
    assert visible_gpus() == []
    assert judge_environment(2) == {"OTHER_VISIBLE": "2", "OTHER_QUEUES": "1"}


def test_a_child_may_write_the_devices_that_are_there_and_nothing_else_of_them(cards: Path) -> None:
    _, writes = confine._gpu_paths()
    assert sorted(writes) == sorted(str(cards / name) for name in ("card0", "card1", "card2", "control"))


def test_memory_is_short_in_the_words_of_any_vendor(cards: Path) -> None:
    assert memory_was_short("RuntimeError: no cards left")
    assert memory_was_short("CUDA out of memory")
    assert not memory_was_short("an illegal memory access was encountered")


def test_without_devices_nothing_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_vendors, "VENDORS", (dataclasses.replace(NVIDIA, device_files=dict),))
    assert (vendor_here().what, visible_gpus()) == ("NVIDIA", [])
