"""Token lengths: every row counted with its thoughts, exact places of answers, percentiles that are never rounded down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.rows import Row
from kernelmill.curate.length_report import (
    PERCENTILES,
    ROUND_TO,
    LengthReport,
    Tally,
    packed_sequences,
    percentile,
    report_of,
)
from kernelmill.curate.lengths import measure
from kernelmill.errors import BadRow, SourceError
from kernelmill.store import open_source
from kernelmill.testing.fake_hub import FakeHub, Fault
from kernelmill.testing.qwen_tokenizer import write_tokenizer
from kernelmill.tokens.chat_rows import ChatReader
from kernelmill.tokens.chat_tokens import load_tokenizer
from kernelmill.tokens.tokenizer_files import TokenizerFiles, find_tokenizer
from tests.conftest import ROOT, command, evals_row, write_rows
from tests.made_once import qwen_folder

EMBEDDED = TokenizerFiles("qwen-embedded", None)
CODE = "import triton\n\n\nclass NetNew:\n    pass"
ANSWER = f"<answer>{CODE}</answer>"
THOUGHTS = "First the shapes. Then the blocks."


@pytest.fixture(scope="module")
def real() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(qwen_folder() / "tokenizer.json"))


@pytest.fixture(scope="module")
def folder() -> Path:
    return qwen_folder()


def row(content: str = ANSWER, prompt: Any = "Write it.", **message: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    return evals_row(1, prompt=prompt, completion=[{"role": "assistant", "content": content, **message}])


def report(
    path: Path, rows: list[dict[str, Any]], files: TokenizerFiles = EMBEDDED, **more: Any
) -> LengthReport:
    return measure(open_source(str(write_rows(path / "rows.jsonl", rows))), files, **more)


def rendered(thoughts: str, content: str) -> str:
    return (
        "<|im_start|>user\nWrite it.<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\n{thoughts}\n</think>\n\n{content}<|im_end|>\n"
    )


@pytest.mark.parametrize(
    "given_row",
    [
        row(reasoning=THOUGHTS),
        row(reasoning_content=THOUGHTS),
        row(reasoning=None, reasoning_content=THOUGHTS),
        row(reasoning_content="", reasoning=THOUGHTS),
        row(thinking=THOUGHTS),
        row(f"<think>\n{THOUGHTS}\n</think>\n\n{ANSWER}"),
        row(f"{THOUGHTS}</think>{ANSWER}"),
        {"messages": [{"role": "user", "content": "Write it."}, row(reasoning=THOUGHTS)["completion"][0]]},
        {"prompt": "Write it.", "completion": f"<think>{THOUGHTS}</think>{ANSWER}"},
    ],
    ids=["reasoning", "reasoning_content", "null beside", "empty beside", "thinking", "think", "unopened", "messages", "texts"],
)  # fmt: skip
def test_thoughts_are_counted_wherever_they_stand_and_left_out_on_request(
    given_row: dict[str, Any], tmp_path: Path, real: tokenizers.Tokenizer
) -> None:
    counted = report(tmp_path, [given_row])
    assert counted.tokens == len(real.encode(rendered(THOUGHTS, ANSWER), add_special_tokens=False))
    assert (counted.tally.with_thoughts, counted.tally.thoughts_left_out) == (1, 0)
    dropped = report(tmp_path, [given_row], reasoning="drop")
    assert dropped.tokens == len(real.encode(rendered("", ANSWER), add_special_tokens=False))
    assert dropped.reasoning == "drop"


def test_prompts_are_counted_with_the_words_that_ask_for_an_answer(
    tmp_path: Path, real: tokenizers.Tokenizer
) -> None:
    text = "<|im_start|>user\nSpecify.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    rows = [
        {"prompt": "Specify.", "module_name": "Net", "python_code": "x"},
        {"prompt": [{"role": "user", "content": "Specify."}], "label": "x"},
    ]
    found = report(tmp_path, rows)
    assert found.tokens == 2 * len(real.encode(text, add_special_tokens=False))
    assert (found.tally.prompts, found.tally.answers) == (2, 0)
    assert [limit.answers_cut for limit in found.limits] == [0] * len(found.limits)


@pytest.mark.heavy
def test_tools_and_template_variables_of_a_row_reach_the_template(
    tmp_path: Path, real: tokenizers.Tokenizer
) -> None:
    template = "{% for tool in tools or [] %}{{ tool.name }} {% endfor %}{{ mode }}{{ messages[-1].content }}"
    files = find_tokenizer(str(write_tokenizer(tmp_path / "own", template)))
    tools = [{"name": "compile"}, {"name": "run"}]
    for columns, text in [
        ({}, ANSWER),
        ({"tools": tools}, f"compile run {ANSWER}"),
        ({"oai_tools": json.dumps(tools)}, f"compile run {ANSWER}"),
        ({"oai_tools": ""}, ANSWER),
        ({"chat_template_kwargs": {"mode": "fast "}}, f"fast {ANSWER}"),
        ({"chat_template_kwargs": '{"mode": "fast "}'}, f"fast {ANSWER}"),
    ]:
        assert report(tmp_path, [{**row(), **columns}], files).tokens == len(real.encode(text))


@pytest.mark.parametrize(
    ("content", "until"),
    [
        (f"So:\n{ANSWER}", "</answer>"),
        (f"{ANSWER}\n\nIt masks the tail.\n" * 2, "</answer>"),
        (f"<answer>\n```python\n{CODE}\n```\n</answer> Done.", "</answer>"),
        (f"BEGIN_PYTHON\n{CODE}\nEND_PYTHON\nDone.", "END_PYTHON"),
        (f"```python\n{CODE}\n```\nDone.", "```"),
        ("No code today, sorry.  \n", "sorry."),
        (f"{ANSWER} and {ANSWER.replace('pass', 'x = 1')}, or so.", "so."),
    ],
    ids=["tags", "last of two", "fence in tags", "begin_python", "fence", "none", "two different"],
)
def test_an_answer_is_cut_exactly_where_its_last_mark_does_not_fit(
    content: str, until: str, tmp_path: Path, real: tokenizers.Tokenizer
) -> None:
    tokenizer = load_tokenizer(EMBEDDED)
    chat = ChatReader("count")(
        Row(0, "x:1", json.dumps(row(content, reasoning=f"Perhaps {ANSWER}?")).encode())
    )
    text = tokenizer.render(chat.messages)
    end = text.rindex(until) + len(until)
    ids = real.encode(text, add_special_tokens=False).ids
    fits = next(
        number for number in range(len(ids) + 1)
        if real.decode(ids[:number], skip_special_tokens=False).startswith(text[:end])
    )  # fmt: skip
    assert text.rindex(chat.ending) + len(chat.ending) == end
    assert tokenizer.tokens.measure(text, end)[1] == fits
    assert chat.clear == (until in ("</answer>", "END_PYTHON", "```"))


def test_rows_whose_answer_is_cut_are_told_from_rows_that_are_only_long(tmp_path: Path) -> None:
    long_tail, long_thoughts = row(f"{ANSWER}\n" + "It is fast. " * 1000), row(reasoning="Hm. " * 2000)
    found = report(tmp_path, [row(), long_tail, long_thoughts])
    limit = found.limits[0]
    assert (limit.seq_len, limit.rows_over, limit.answers_cut) == (2048, 2, 1)


@pytest.mark.heavy
def test_a_template_that_leaves_thoughts_out_is_noticed(tmp_path: Path, mill: Callable[..., Any]) -> None:
    write_tokenizer(tmp_path / "deaf", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    write_rows(tmp_path / "rows.jsonl", [row(reasoning=THOUGHTS), row(reasoning=THOUGHTS), row()])
    done = mill("lengths", "rows.jsonl", "--tokenizer", "deaf")
    assert done.returncode == 0, done.stderr
    assert "NOT counted in 2 of the 2 rows that have some: this chat template leaves it out" in done.stdout


@pytest.mark.heavy
def test_an_answer_that_the_template_rewrites_ends_with_its_row(tmp_path: Path) -> None:
    files = find_tokenizer(str(write_tokenizer(tmp_path / "loud", "{{ messages[-1].content | upper }}")))
    found = report(tmp_path, [row(ANSWER * 300)], files)
    assert found.tally.changed == 1
    assert found.limits[0].answers_cut == found.limits[0].rows_over == 1


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"a": 1}, "rows.jsonl:2: no chat in this row"),
        ({"prompt": 5}, "rows.jsonl:2: field $.prompt: expected a list of messages"),
        ({"prompt": [{"content": "x"}]}, "rows.jsonl:2: field $.prompt[0]: expected a message"),
        ({"messages": []}, "rows.jsonl:2: no chat in this row"),
        (row(reasoning=["x"]), "rows.jsonl:2: thoughts of a message must be text"),
        ({**row(), "oai_tools": "{"}, "rows.jsonl:2: field $.oai_tools: not JSON"),
        ({**row(), "chat_template_kwargs": [1]}, "rows.jsonl:2: field $.chat_template_kwargs: expected a dict"),
        (row(prompt=[{"role": "system", "content": None}]), "rows.jsonl:2: the chat template of qwen-embedded fails"),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_counted_is_an_error_that_names_it(
    bad: dict[str, Any], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(Path("rows.jsonl"), [row(), bad])
    with pytest.raises(BadRow) as error:
        measure(open_source("rows.jsonl"), EMBEDDED)
    assert str(error.value).startswith(problem)


def test_thoughts_that_never_end_can_be_counted_but_not_left_out(tmp_path: Path) -> None:
    rows = [row(f"<think>hm {ANSWER}")]
    assert report(tmp_path, rows).rows == 1
    with pytest.raises(BadRow, match="thoughts cannot be left out"):
        report(tmp_path, rows, reasoning="drop")


def test_an_error_in_another_process_names_its_row_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmill.curate.lengths._CHUNK_ROWS", 2)
    with pytest.raises(BadRow, match=r"rows.jsonl:12: no chat in this row"):
        report(tmp_path, [row() for _ in range(11)] + [{"x": 1}])


def test_no_rows_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no rows"):
        report(tmp_path, [])


def test_counts_do_not_depend_on_how_rows_are_dealt_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_source("bundled:samples/evals.jsonl")
    alone = measure(source, EMBEDDED)
    monkeypatch.setattr("kernelmill.curate.lengths._CHUNK_ROWS", 3)
    assert measure(source, EMBEDDED) == alone
    assert alone.rows == 60
    assert [long.tokens for long in alone.longest_rows] == sorted(
        (long.tokens for long in alone.longest_rows), reverse=True
    )
    assert alone.longest_rows[0].tokens == alone.longest


@given(st.lists(st.integers(1, 300_000), min_size=1, max_size=300))
def test_a_percentile_is_the_smallest_length_that_so_many_rows_do_not_pass(numbers: list[int]) -> None:
    ordered = sorted(numbers)
    for name in PERCENTILES:
        found = percentile(ordered, name)
        thousandths = round(float(name) * 10)
        assert found in ordered
        assert sum(length <= found for length in ordered) * 1000 >= thousandths * len(ordered)
        smaller = [length for length in ordered if length < found]
        assert len(smaller) * 1000 < thousandths * len(ordered)


def test_percentiles_of_a_thousand_rows_are_ranks_and_not_one_less() -> None:
    ordered = list(range(1, 1001))
    assert [percentile(ordered, name) for name in PERCENTILES] == [500, 750, 900, 950, 990, 995, 999, 1000]


@given(st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 200_000)), min_size=1, max_size=100))
def test_the_numbers_of_a_report_add_up(pairs: list[tuple[int, int]]) -> None:
    lengths = array("I", [length for length, _ in pairs])
    reaches = array("I", [min(reach, length) for length, reach in pairs])
    found = report_of(lengths, reaches, Tally(), [], "s", {}, "count")
    assert sum(bucket.rows for bucket in found.buckets) == found.rows == len(pairs)
    for bucket in found.buckets:
        assert bucket.rows == sum(bucket.low <= length < bucket.high for length in lengths)
    for best in found.recommended:
        assert best.seq_len % ROUND_TO == 0
        assert best.rows_over <= (1 - float(best.coverage) / 100) * found.rows
        assert best.answers_cut == sum(reach > best.seq_len for reach in reaches) <= best.rows_over
        kept = sum(min(length, best.seq_len) for length in lengths)
        assert best.packed == round(kept / (best.sequences * best.seq_len), 4) <= 1
    assert found.recommended[-1].rows_over == 0
    assert found.recommended[-1].seq_len - found.longest < ROUND_TO


@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(20, 50))
def test_packing_is_best_fit_with_the_longest_first(numbers: list[int], seq_len: int) -> None:
    rooms: list[int] = []
    for size in sorted((min(number, seq_len) for number in numbers), reverse=True):
        fitting = [room for room in rooms if room >= size]
        if fitting:
            rooms.remove(min(fitting))
        rooms.append((min(fitting) if fitting else seq_len) - size)
    assert packed_sequences(sorted(numbers), seq_len) == len(rooms)


def test_no_length_is_too_long_to_be_recommended() -> None:
    found = report_of(array("I", [10, 300_000]), array("I", [0, 299_999]), Tally(), [], "s", {}, "count")
    assert found.recommended[-1].seq_len == 300_032
    assert found.limits[-1].answers_cut == 1


def test_the_command_prints_the_report_and_writes_json_and_svg(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    done = mill(
        "lengths", "bundled:samples/evals.jsonl", "--tokenizer", "qwen-embedded", "--json", "out/a.json", "--plot", "a.svg",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    numbers = json.loads((tmp_path / "out/a.json").read_text())
    assert (numbers["version"], numbers["rows"], numbers["reasoning"]) == (1, 60, "count")
    assert list(numbers["percentiles"]) == list(PERCENTILES)
    assert f"tokens      {numbers['tokens']:,}" in done.stdout
    assert "reasoning   counted; 8 rows have some" in done.stdout
    assert ET.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    again = mill(
        "lengths", "bundled:samples/evals.jsonl", "--tokenizer", "qwen-embedded", "--json", "b.json", "--plot", "b.svg",
    )  # fmt: skip
    assert again.returncode == 0
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "out/a.json").read_bytes()
    assert (tmp_path / "b.svg").read_bytes() == (tmp_path / "a.svg").read_bytes()


def test_the_old_script_reads_the_dataset_of_the_environment(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [row()])
    line = [sys.executable, str(ROOT / "scripts/analyze_seq_length.py"), "--tokenizer", "qwen-embedded"]
    done = subprocess.run(
        line, env={**os.environ, "DATASET_PATH": "rows.jsonl"}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert "rows        1 " in done.stdout


def test_outputs_are_not_written_over_the_source_nor_as_png(tmp_path: Path, mill: Callable[..., Any]) -> None:
    write_rows(tmp_path / "rows.jsonl", [row()])
    before = (tmp_path / "rows.jsonl").read_bytes()
    done = mill("lengths", "rows.jsonl", "--tokenizer", "qwen-embedded", "--json", "rows.jsonl")
    assert (done.returncode, done.stderr) == (1, "kernelmill: rows.jsonl is the source: name another file\n")
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    done = mill("lengths", "rows.jsonl", "--tokenizer", "qwen-embedded", "--plot", "a.png")
    assert done.returncode == 2
    assert "the name must end in .svg" in done.stderr


def test_rows_with_windows_line_ends_and_of_any_size_are_counted(
    tmp_path: Path, real: tokenizers.Tokenizer
) -> None:
    content = "x = 1  # é\r\n\r\n" * 20_000 + ANSWER
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(row(content)).encode() + b"\r\n")
    found = measure(open_source(str(path)), EMBEDDED)
    assert found.tokens == len(real.encode(rendered("", content), add_special_tokens=False))


def test_ctrl_c_ends_it_at_once_and_says_so(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(reasoning=f"{n} é " * 20_000) for n in range(150)])
    process = subprocess.Popen(
        command("lengths", "rows.jsonl", "--tokenizer", "qwen-embedded"),
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    while len(psutil.Process(process.pid).children(recursive=True)) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=240)
    said = "source      rows.jsonl (given)\n"
    assert (process.returncode, stdout, stderr) == (130, said, "kernelmill: interrupted\n")


MODEL = "Qwen/Qwen3-30B-A3B-Thinking-2507"


@pytest.mark.heavy
def test_the_default_tokenizer_comes_from_the_hub_at_one_commit(
    tmp_path: Path, folder: Path, mill_process: Callable[..., Any]
) -> None:
    write_rows(tmp_path / "rows.jsonl", [row(reasoning=THOUGHTS)])
    with FakeHub() as hub:
        sha = hub.put("model", MODEL, {path.name: path.read_bytes() for path in folder.iterdir()})
        done = mill_process("lengths", "rows.jsonl", "--json", "hub.json", env=hub.environment())
        assert done.returncode == 0, done.stderr
        assert f"tokenizer   {MODEL} at {sha[:7]}" in done.stdout
        pinned = mill_process("lengths", "rows.jsonl", "--tokenizer", f"{MODEL}@{sha}", env=hub.environment())
        assert pinned.returncode == 0, pinned.stderr
    numbers = json.loads((tmp_path / "hub.json").read_text())
    assert numbers["tokenizer"]["revision"] == sha
    assert numbers["tokens"] == report(tmp_path, [row(reasoning=THOUGHTS)]).tokens


def test_all_splits_of_a_hub_dataset_are_counted(tmp_path: Path, mill_process: Callable[..., Any]) -> None:
    lines = (json.dumps(row()) + "\n").encode()
    with FakeHub() as hub:
        hub.put("dataset", "org/evals", {"train.jsonl": lines * 3, "validation.jsonl": lines})
        done = mill_process("lengths", "org/evals", "--tokenizer", "qwen-embedded", env=hub.environment())
        one = mill_process(
            "lengths",
            "org/evals",
            "--tokenizer",
            "qwen-embedded",
            "--split",
            "validation",
            env=hub.environment(),
        )
    assert "rows        4 " in done.stdout, done.stderr
    assert "rows        1 " in one.stdout, one.stderr


@pytest.mark.parametrize(
    ("name", "faults", "problem"),
    [
        ("org/nobody", [], "the Hub has no public model org/nobody (is it private?"),
        ("org/slow", [], "org/slow on the Hub has no tokenizer.json"),
        (f"{MODEL}@nowhere", [], "has no such revision"),
        (
            MODEL,
            [Fault("/api/models/", action=500, times=99)],
            f"the Hub answered 500 for {MODEL}: try again later",
        ),
        (MODEL, [Fault("tokenizer.json", action=403, times=99)], "the Hub"),
    ],
    ids=["missing", "slow", "revision", "broken", "refused"],
)
def test_trouble_with_the_hub_is_one_line_that_names_a_way_out(
    name: str,
    faults: list[Fault],
    problem: str,
    tmp_path: Path,
    folder: Path,
    mill_process: Callable[..., Any],
) -> None:
    write_rows(tmp_path / "rows.jsonl", [row()])
    with FakeHub(faults) as hub:
        hub.put("model", MODEL, {path.name: path.read_bytes() for path in folder.iterdir()})
        hub.put("model", "org/slow", {"vocab.model": b"x"})
        done = mill_process("lengths", "rows.jsonl", "--tokenizer", name, env=hub.environment())
    assert done.returncode == 1
    assert problem in done.stderr
    assert "--tokenizer qwen-embedded" in done.stderr
    assert done.stderr.count("\n") == 1
