"""Verifying a merged set: whatever is changed in it, verify fails and names the line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelmill.cli import main
from kernelmill.problems.sets.levels import level_file
from kernelmill.problems.sets.merge import merged, read_levels, written
from kernelmill.problems.sets.verify import VerifyRequest, verify
from tests.conftest import many
from tests.problems.sets.sets import line, rl_row, write_levels

SMALL = {1: 6, 2: 5, 3: 3, 4: 2}
ALL = "kernel_bench_triton_all_levels.jsonl"


def changed(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def one(raw: bytes) -> bytes:
        row = json.loads(raw)
        return line(change(row) or row)

    return one


def in_extra(**values: Any) -> Callable[[bytes], bytes]:
    return changed(lambda row: row["extra_info"].update(values))


def relevelled(row: dict[str, Any]) -> None:
    """With all that hangs on it, so that the row by itself is a good one."""
    extra = row["extra_info"]
    extra["level"] = extra["level"] % 4 + 1
    row["instance_id"] = f"kernel_bench_triton_lv{extra['level']}_{extra['problem_id']}"


def other_order(row: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(row.items()))


LINE_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "label edited": changed(lambda row: row.update(label=row["label"] + "\n# faster")),
    "label torn": changed(lambda row: row.update(label=row["label"][:-20])),
    "label without Model": changed(
        lambda row: row.update(label=row["label"].replace("class Model", "class Net"))
    ),
    "prompt edited": changed(lambda row: row["prompt"][1].update(content="Write a kernel.")),
    "roles swapped": changed(lambda row: row.update(prompt=row["prompt"][::-1])),
    "a message more": changed(lambda row: row["prompt"].append({"role": "assistant", "content": "No."})),
    "renamed": in_extra(problem_name="Another"),
    "re-levelled": changed(relevelled),
    "level alone": changed(lambda row: row["extra_info"].update(level=row["extra_info"]["level"] % 4 + 1)),
    "level as a text": changed(lambda row: row["extra_info"].update(level=str(row["extra_info"]["level"]))),
    "level as a float": changed(
        lambda row: row["extra_info"].update(level=float(row["extra_info"]["level"]))
    ),
    "problem_id as an int": changed(
        lambda row: row["extra_info"].update(problem_id=int(row["extra_info"]["problem_id"]))
    ),
    "problem_id with a zero": changed(
        lambda row: row["extra_info"].update(problem_id="0" + row["extra_info"]["problem_id"])
    ),
    "another source": in_extra(data_source="kernel_bench_cuda"),
    "another task": in_extra(task_type="kernelbook"),
    "another id": changed(lambda row: row.update(instance_id="kernel_bench_triton_lv1_9999")),
    "keys in another order": changed(other_order),
    "extra keys in another order": changed(
        lambda row: row.update(extra_info=dict(reversed(row["extra_info"].items())))
    ),
    "a key more": changed(lambda row: row.update(seen=True)),
    "a key less": changed(lambda row: row.pop("label") and None),
    "an extra key less": changed(lambda row: row["extra_info"].pop("task_type") and None),
    "a key twice": lambda raw: raw[:-1] + b', "label": "x"}',
    "escaped": lambda raw: json.dumps(json.loads(raw)).encode(),
    "without spaces": lambda raw: json.dumps(
        json.loads(raw), ensure_ascii=False, separators=(",", ":")
    ).encode(),
    "a space behind": lambda raw: raw + b" ",
    "latin-1": lambda raw: raw.decode().replace("更快", "").encode("latin-1"),
    "utf-16": lambda raw: raw.decode().encode("utf-16"),
    "crlf": lambda raw: raw + b"\r",
    "a list": lambda raw: b"[" + raw + b"]",
    "null": lambda raw: b"null",
    "a zero byte": lambda raw: raw[:30] + b"\0" + raw[30:],
    "NaN": lambda raw: raw[:-1] + b', "reward": NaN}',
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_levels(folder, SMALL)
    (folder / ALL).write_bytes(written(merged(read_levels(folder, sorted(SMALL)))))
    return folder


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad")


def mutated(good: Path, bad: Path, name: str, content: bytes) -> dict[str, str]:
    """The faults by place of the good set with one file replaced."""
    for file in good.iterdir():
        (bad / file.name).write_bytes(content if file.name == name else file.read_bytes())
    found = verify(VerifyRequest(bad, bad / ALL, sorted(SMALL), any_counts=True)).faults
    return {fault.where.removeprefix(f"{bad}/"): fault.text for fault in found}


def other_places(good: Path, raw: bytes) -> set[str]:
    """Where this line stands in the good set: in its level file and in the merged one."""
    return {
        f"{file.name}:{number}"
        for file in good.iterdir()
        for number, one in enumerate(file.read_bytes().split(b"\n"), 1)
        if one == raw
    }


def test_the_set_is_good_before_anything_is_done_to_it(good: Path, bad: Path) -> None:
    assert mutated(good, bad, "", b"") == {}


FILES = st.sampled_from([ALL, *(level_file(Path(), level).name for level in SMALL)])


@given(name=FILES, change=st.sampled_from(sorted(LINE_CHANGES)), at=st.integers(0, 1000))
@settings(max_examples=many(400), deadline=None)
def test_a_changed_line_is_found_and_named(good: Path, bad: Path, name: str, change: str, at: int) -> None:
    lines = (good / name).read_bytes().split(b"\n")[:-1]
    at %= len(lines)
    before = lines[at]
    lines[at] = LINE_CHANGES[change](before)
    assert lines[at] != before
    faults = mutated(good, bad, name, b"\n".join(lines) + b"\n")
    # In a level file the merged file's line is as good a name: the two differ, and nobody knows which one is right.
    named = {f"{name}:{at + 1}"} if name == ALL else other_places(good, before)
    assert named & set(faults), faults


@given(name=FILES, at=st.integers(0, 10**6), byte=st.integers(0, 255))
@settings(max_examples=many(400), deadline=None)
def test_a_changed_byte_is_found_and_its_line_named(
    good: Path, bad: Path, name: str, at: int, byte: int
) -> None:
    content = bytearray((good / name).read_bytes())
    at %= len(content)
    if content[at] == byte:
        return
    number = content[:at].count(b"\n")
    before = bytes(content).split(b"\n")[number]
    content[at] = byte
    faults = mutated(good, bad, name, bytes(content))
    named = {f"{name}:{number + 1}"} if name == ALL else other_places(good, before)
    assert named & set(faults), faults


@given(name=FILES, at=st.integers(0, 1000), to=st.integers(0, 1000))
@settings(max_examples=many(200), deadline=None)
def test_a_line_dropped_or_doubled_is_found_and_named(
    good: Path, bad: Path, name: str, at: int, to: int
) -> None:
    lines = (good / name).read_bytes().split(b"\n")[:-1]
    at %= len(lines)
    raw = lines[at]
    dropped = mutated(good, bad, name, b"".join(one + b"\n" for one in lines if one != raw))
    assert other_places(good, raw) - {f"{name}:{at + 1}"} <= set(dropped), dropped
    lines.insert(to % (len(lines) + 1), raw)
    doubled = mutated(good, bad, name, b"\n".join(lines) + b"\n")
    second = max(number for number, one in enumerate(lines, 1) if one == raw)
    assert f"{name}:{second}" in doubled, doubled


@given(name=FILES, at=st.integers(1, 10**6))
@example(name="kernel_bench_triton_level_1.jsonl", at=2302)
@settings(max_examples=many(200), deadline=None)
def test_a_torn_file_is_found_where_it_is_torn(good: Path, bad: Path, name: str, at: int) -> None:
    content = (good / name).read_bytes()
    kept = content[: 1 + at % (len(content) - 2)]
    faults = mutated(good, bad, name, kept)
    whole, left = content.split(b"\n")[:-1], kept.removesuffix(b"\n").split(b"\n")
    if left[-1] != whole[len(left) - 1]:
        assert f"{name}:{len(left)}" in faults, faults
    else:  # cut behind a line, with its end or without: every line that is lost is named
        for lost in whole[len(left) :]:
            assert other_places(good, lost) & set(faults), faults
    assert faults


@pytest.mark.parametrize("name", [ALL, "kernel_bench_triton_level_2.jsonl"])
@pytest.mark.parametrize(
    "encode",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: text.encode("utf-16-be"),
        lambda text: text.replace("更快", "").encode("latin-1"),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: b"\n" + text.encode(),
    ],
    ids=["bom", "utf-16", "utf-16-be", "latin-1", "crlf", "blank"],
)
def test_a_file_in_another_encoding_is_found_at_its_first_line(
    good: Path, bad: Path, name: str, encode: Callable[[str], bytes]
) -> None:
    faults = mutated(good, bad, name, encode((good / name).read_text(encoding="utf-8")))
    assert {f"{name}:1", f"{name}:2"} & set(faults), faults


def test_a_merged_file_without_its_last_line_end_is_a_fault_and_a_level_file_is_not(
    good: Path, bad: Path
) -> None:
    assert list(mutated(good, bad, ALL, (good / ALL).read_bytes()[:-1])) == [f"{ALL}:16"]
    name = "kernel_bench_triton_level_1.jsonl"
    assert mutated(good, bad, name, (good / name).read_bytes()[:-1]) == {}


def test_the_command_fails_says_where_and_passes_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_levels(tmp_path)
    assert main(["problems", "merge"]) == 0
    assert main(["problems", "verify"]) == 0
    content = (tmp_path / ALL).read_bytes()
    lines = content.split(b"\n")
    (tmp_path / ALL).write_bytes(
        b"\n".join([*lines[:99], LINE_CHANGES["problem_id as an int"](lines[99]), *lines[100:]])
    )
    capsys.readouterr()
    assert main(["problems", "verify"]) == 1
    shown = capsys.readouterr().out
    assert f"{ALL}:100: extra_info.problem_id is" in shown
    assert "FAILED" in shown
    (tmp_path / ALL).write_bytes(content)
    assert main(["problems", "verify"]) == 0


def test_the_same_row_missing_everywhere_is_still_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_levels(tmp_path, {1: 100, 2: 99, 3: 50, 4: 20})
    assert main(["problems", "merge"]) == 0
    assert main(["problems", "verify"]) == 1
    assert "99 rows, KernelBench has 100 in level 2" in capsys.readouterr().out
    assert main(["problems", "verify", "--any-counts"]) == 0


def test_a_problem_under_two_ids_is_a_fault(tmp_path: Path) -> None:
    write_levels(tmp_path, SMALL)
    twin = {**rl_row(1, 99), "label": rl_row(3, 2)["label"]}
    file = level_file(tmp_path, 1)
    file.write_bytes(file.read_bytes() + line(twin) + b"\n")
    (tmp_path / ALL).write_bytes(written(merged(read_levels(tmp_path, sorted(SMALL)))))
    found = verify(VerifyRequest(tmp_path, tmp_path / ALL, sorted(SMALL), any_counts=True)).faults
    assert [fault.text for fault in found] == [f"the same reference (label) stands at {file}:7 too"]


def test_an_order_that_was_asked_for_is_held_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_levels(tmp_path)
    assert main(["problems", "merge", "--seed", "5"]) == 0
    assert main(["problems", "verify"]) == 0
    assert main(["problems", "verify", "--seed", "5"]) == 0
    assert main(["problems", "verify", "--seed", "42"]) == 1
    assert main(["problems", "verify", "--order", "level"]) == 1
    assert main(["problems", "merge", "--no-shuffle"]) == 0
    assert main(["problems", "verify", "--order", "level"]) == 0
    assert "level by level" not in capsys.readouterr().err


def test_a_mixture_verifies_with_the_weights_it_was_made_with_and_with_no_others(tmp_path: Path) -> None:
    write_levels(tmp_path)
    assert main(["problems", "merge", "--weights", "1=2,3=0.5"]) == 0
    assert main(["problems", "verify", "--weights", "1=2,3=0.5"]) == 0
    assert main(["problems", "verify", "--weights", "1=2"]) == 1
    assert main(["problems", "verify"]) == 1
