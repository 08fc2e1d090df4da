"""The parts by themselves: settings, answers as servers give them, statistics, the seam for writers."""

from __future__ import annotations

import asyncio
import json
import math
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.base.answers import read_answer
from kernelmill.base.control import Control
from kernelmill.base.rows import Drop
from kernelmill.cli import main
from kernelmill.errors import ConfigError
from kernelmill.evaluate.options import Pair
from kernelmill.evaluate.verdict import Verdict
from kernelmill.flow import COMMANDS
from kernelmill.generate.synthesize.config_file import load_settings
from kernelmill.generate.synthesize.grading import Grader
from kernelmill.generate.synthesize.model_writer import text_and_reasoning
from kernelmill.generate.synthesize.problems import CandidateRequest, PromptBuilder, RolloutSource
from kernelmill.generate.synthesize.rollout import GAMMA, RolloutRunner, discounted
from kernelmill.generate.synthesize.settings import SynthesizeSettings
from kernelmill.generate.synthesize.statistics import pass_at_k
from kernelmill.generate.synthesize.writer import WriterAnswer
from kernelmill.llm.client import incomplete_reason, read_reply
from kernelmill.llm.engine import Messages
from kernelmill.llm.journal import Journal
from kernelmill.llm.prompts import Prompt
from kernelmill.settings.commands import parser_of
from kernelmill.testing.fake_endpoint import FakeEndpoint
from tests.conftest import ROOT, read_rows, write_rows
from tests.generate.synthesize.answers import (
    EMPTY,
    PROSE,
    REFERENCE,
    asked,
    manifest,
    problem,
    rows,
    synthesize,
)


def response(**message: Any) -> str:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]})


@pytest.mark.parametrize(
    "message",
    [
        {"content": "text", "reasoning": "thoughts"},
        {"content": "text", "reasoning_content": " thoughts\n"},
        {"content": "text", "reasoning": "thoughts", "reasoning_content": "thoughts"},
        {"content": "<think>\nthoughts\n</think>\n\ntext"},
        {"content": "thoughts</think>text"},
        {"content": [{"type": "text", "text": "text"}], "reasoning_content": "thoughts"},
    ],
)
def test_thoughts_are_found_wherever_a_server_puts_them(message: dict[str, Any]) -> None:
    text = response(**message)
    assert text_and_reasoning(read_reply(text)) == ("text", "thoughts")


def test_thoughts_that_do_not_end_stay_in_the_text() -> None:
    text = response(content="<think>on and on", reasoning=None)
    assert text_and_reasoning(read_reply(text)) == ("<think>on and on", "")


def test_half_a_surrogate_pair_in_thoughts_does_not_end_the_run() -> None:
    text = response(content="text", reasoning="a \ud83d b")
    assert text_and_reasoning(read_reply(text))[1].encode("utf-8") == b"a ? b"


def test_an_answer_that_was_cut_is_none_though_it_looks_whole() -> None:
    body = json.loads(response(content="<answer>\nimport torch\n</answer>"))
    body["choices"][0]["finish_reason"] = "length"
    assert "finish_reason length" in incomplete_reason(read_reply(json.dumps(body)))


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_correct_one(n: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * correct + [False] * (n - correct), k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@given(st.lists(st.one_of(st.none(), st.floats(-1, 10)), max_size=6))
def test_a_return_is_the_discounted_sum_of_what_follows_and_none_where_something_is_masked(
    rewards: list[float | None],
) -> None:
    for place, found in enumerate(discounted(rewards)):
        rest = rewards[place:]
        if None in rest:
            assert found is None
        else:
            total = math.fsum(GAMMA**n * reward for n, reward in enumerate(rest) if reward is not None)
            assert found == pytest.approx(total)


def test_the_keys_of_the_config_file_set_what_they_say(tmp_path: Path) -> None:
    settings = load_settings({}, ROOT / "configs/synth.toml")
    assert (settings.base_url, settings.model) == ("http://127.0.0.1:8000/v1", "zai-org/GLM-4.7-FP8")
    assert (settings.concurrency, settings.timeout) == (64, 1800.0)
    assert settings.output == Path("outputs/evals.jsonl")
    assert (settings.sampling.temperature, settings.sampling.max_tokens) == (1.0, 32768)
    (one,) = settings.sets()
    assert (one.id, one.task, one.num_examples, one.rollouts_per_example) == (
        "GPUMODE/KernelBook",
        "kernelbook",
        -1,
        4,
    )


def test_a_flag_wins_over_the_environment_and_that_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_MODEL", "from-the-environment")
    monkeypatch.setenv("KERNELMILL_TIMEOUT", "7")
    settings = load_settings(
        {"timeout": "9", "rollouts": "3", "sampling": {"seed": "5"}}, ROOT / "configs/synth.toml"
    )
    assert (settings.model, settings.timeout) == ("from-the-environment", 9.0)
    assert (settings.sampling.seed, settings.sampling.top_p) == (5, 0.95)
    assert [one.rollouts_per_example for one in settings.sets()] == [3]
    (one,) = load_settings({"problems": "here"}, ROOT / "configs/synth.toml").sets()
    assert (one.id, one.task, one.rollouts_per_example) == ("here", "here", 1)


@pytest.mark.parametrize("flag", ["source", "problems"])
def test_a_source_on_the_command_line_takes_the_place_of_the_files(tmp_path: Path, flag: str) -> None:
    (tmp_path / "sets.toml").write_text("[[env]]\nid = 'x'\n")
    (tmp_path / "one.toml").write_text("[synthesize]\nproblems = 'y'\n")
    for file in ("sets.toml", "one.toml"):
        (one,) = load_settings({flag: "GPUMODE/KernelBook"}, tmp_path / file).sets()
        assert one.id == "GPUMODE/KernelBook"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], "no key for https://"),
        (["problems", "--base-url", "http://127.0.0.1:9/v1"], "name the problems once"),
        (["--base-url", "http://127.0.0.1:9/v1", "--reward", "sped"], "did you mean speedup"),
        (["--base-url", "http://127.0.0.1:9/v1", "--device", "cuda"], "needs a GPU"),
        (["--base-url", "http://127.0.0.1:9/v1", "--stats", "out.manifest.json"], "--stats"),
        (["--base-url", "http://127.0.0.1:9/v1", "--skip-first", "1"], "no problem is left"),
    ],
)
def test_a_mistake_gets_one_line_before_anything_is_asked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    expected: str,
) -> None:
    monkeypatch.setattr("kernelmill.evaluate.evaluator.visible_gpus", list)
    problem(tmp_path / "problems")
    assert main(["synthesize", "--problems", "problems", "-o", "out.jsonl", *more]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max_concurent = 3", "max_concurent"),
        ("[client]\nurl = 'x'", "client.url"),
        ("[[env]]\nname = 'x'", "env.0.id"),
        ("[[env]]\nid = 'x'\nrollouts = 3", "env.0.rollouts"),
        ("[[env]]\nid = 'x'\nargs = { splt = 'train' }", "splt"),
        ("[synthesize]\nturns = 0", "turns"),
        ("[synthesize]\nreward = 'sped'", "speedup"),
        ("model = 'x'", "must be a table"),
        ("[sampling]\ntemprature = 1", "temprature"),
        ("[[env", "not valid TOML"),
        ("[[env]]\nid = 'x'\n[synthesize]\nproblems = 'y'", "name the problems once"),
    ],
)
def test_a_mistake_in_the_config_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings({}, tmp_path / "bad.toml")


def test_the_installed_command_is_the_same_one() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["synthesize"] == "kernelmill.cli:synthesize"


def test_sets_are_read_one_after_the_other_and_examples_numbered_through(tmp_path: Path) -> None:
    problem(tmp_path / "one", "A", "B", "C")
    write_rows(
        tmp_path / "two.jsonl", [{"python_code": REFERENCE, "entry_point": "ScaledShift", "triton_code": "t"}]
    )
    (tmp_path / "sets.toml").write_text(
        "[[env]]\nid = 'one'\nskip_first = 1\nnum_examples = 1\nrollouts_per_example = 2\n[[env]]\nid = 'two.jsonl'\nname = 'two'\n"
    )
    settings = load_settings({}, tmp_path / "sets.toml")
    found = [
        (row.index, row.example_id, row.sample, row.samples, row.task)
        for row in RolloutSource(settings.sets()).rows()
    ]
    assert found == [(0, 0, 0, 2, "one"), (1, 0, 1, 2, "one"), (2, 1, 0, 1, "two")]


def test_each_rollout_has_its_own_seed_and_its_own_answer(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda body: f"{PROSE} {body['seed']}") as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 3, "--sampling", "seed=40") == 0
        assert sorted(call.body["seed"] for call in endpoint.seen) == [40, 41, 42]
    assert [row["completion"][0]["content"][-2:] for row in rows()] == ["40", "41", "42"]


def test_a_prompt_of_ones_own_is_all_that_is_sent_and_its_hash_is_recorded(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    (tmp_path / "own.md").write_text("{{ class_name }} on {{ hardware }}: {{ precision }}")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        told = (
            "--prompt",
            "own.md",
            "--hardware",
            "a toaster",
            "--tf32",
            "--reasoning-field",
            "reasoning_content",
        )
        assert synthesize(endpoint.base_url, *told) == 0
        (call,) = endpoint.seen
    (message,) = call.body["messages"]
    assert message["content"].startswith("ScaledShiftNew on a toaster: ")
    assert "TF32" in message["content"]
    assert manifest()["prompts"]["own.md"] == Prompt("synthesize", tmp_path / "own.md").sha256


def test_the_version_of_the_prompt_stands_in_every_row_and_changes_with_its_text(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    versions = []
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        for text in (None, "{{ class_name }}", "{{ class_name }}.", "{{ class_name }}"):
            (tmp_path / "own.md").write_text(text or "")
            assert (
                synthesize(endpoint.base_url, "--rollouts", 2, *(("--prompt", "own.md") if text else ())) == 0
            )
            one, two = rows()
            assert one["prompt_version"] == two["prompt_version"] == manifest()["prompt_version"]
            versions.append(one["prompt_version"])
    assert versions[1] == versions[3]
    assert len(set(versions)) == 3


def test_the_prompt_that_ships_says_what_is_asked_for_and_in_which_form(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    for tf32 in (False, True):
        (one,) = problems_of(SynthesizeSettings(problems="problems", tf32=tf32, hardware="a toaster"))
        system, asked_for = one.messages
        assert (system["role"], asked_for["role"]) == ("system", "user")
        assert f'```python\n"""ScaledShift"""\n{REFERENCE}' in asked_for["content"]
        assert "`ScaledShiftNew`" in asked_for["content"]
        assert "a toaster" in asked_for["content"]
        assert ("TF32, its default, is not allowed" in asked_for["content"]) is not tf32
        # The example is an answer in the form that is asked for, and the form is named last.
        assert (
            "@triton.jit"
            in read_answer(asked_for["content"].split("Now your module")[0].split("A good answer:")[1]).code
        )
        assert asked_for["content"].rstrip().endswith("between <answer> and </answer>.")


def test_prose_is_told_that_there_is_no_answer_and_not_where_its_grammar_is_wrong(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url) == 0
    (row,) = rows()
    assert row["verdict"]["status"] == "FORMAT_ERROR"
    assert "no answer block" in row["verdict"]["error"]
    assert "there is no candidate in the answer" in row["verdict"]["feedback"]
    assert manifest()["judged"] == 0


def test_a_dry_run_asks_nothing_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "--dry-run", "--rollouts", 3, "--price", "1,10") == 0
        assert endpoint.asked.total() == 0
    shown = capsys.readouterr().out
    assert "calls: 3 to fake" in shown
    assert REFERENCE in shown
    assert [path.name for path in tmp_path.iterdir()] == ["problems"]


def test_only_what_is_kept_is_written_and_the_rest_says_why(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        for keep in ("correct", "fastest"):
            assert synthesize(endpoint.base_url, "--rollouts", 2, "--keep", keep) == 0
            assert rows() == []
            reasons = [row["reason"] for row in read_rows(Path("out.rejected.jsonl"))]
            assert reasons == ["incorrect (FORMAT_ERROR)"] * 2
            assert manifest()["statistics"]["rollouts"] == 2
        assert endpoint.asked.total() == 2


def test_a_manifest_repeats_its_run(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 2) == 0
        before = Path("out.jsonl").read_bytes()
        assert main(["synthesize", "@", "out.manifest.json"]) == 0
        assert endpoint.asked.total() == 2
    assert Path("out.jsonl").read_bytes() == before


def test_what_a_manifest_saves_can_be_told_on_the_command_line(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: PROSE) as endpoint:
        assert synthesize(endpoint.base_url) == 0
    shown = parser_of(COMMANDS["synthesize"]).format_help()
    saved = set(manifest()["config"]) - {"source", "prices"}
    assert [name for name in saved if f"--{name.replace('_', '-')}" not in shown] == []


class Scribe:
    """A writer that is no model: it keeps its answers in memory, and says how many it wrote at a time."""

    name = "scribe"
    at_once = 3
    free = True

    def __init__(self) -> None:
        self.kept: dict[str, WriterAnswer] = {}
        self.writing = self.most = 0

    def known(self, problem: CandidateRequest, messages: Messages) -> WriterAnswer | None:
        return self.kept.get(problem.key)

    async def write(self, problem: CandidateRequest, messages: Messages) -> None:
        self.writing += 1
        self.most = max(self.most, self.writing)
        await asyncio.sleep(0.01)
        self.kept[problem.key] = WriterAnswer(f"import answer_{problem.sample}", seconds=0.01)
        self.writing -= 1

    def check_breaker(self) -> None:
        """Never gives up."""


class SlowGrader(Grader):
    """Judges by waiting."""

    beside = 0
    judging = most = 0

    async def _judge(self, pair: Pair) -> Verdict:
        self.judging += 1
        self.most = max(self.most, self.judging)
        for _ in range(5):
            await asyncio.sleep(0.004)
            self.beside += self.scribe.writing > 0
        self.judging -= 1
        return Verdict(id="", status="INCORRECT_NUMERICAL", tier="interpreter")

    scribe: Scribe


def problems_of(settings: SynthesizeSettings) -> Iterator[CandidateRequest]:
    asker = PromptBuilder(settings)
    for row in RolloutSource(settings.sets()).rows():
        taken = asker.take(row)
        assert not isinstance(taken, Drop)
        yield taken


def test_any_writer_will_do_and_writing_goes_on_while_others_are_judged(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    settings = SynthesizeSettings(problems="problems", rollouts=40, workers=2, device="cpu")

    async def run() -> tuple[Scribe, SlowGrader]:
        scribe = Scribe()
        with Journal(tmp_path / "journal.sqlite") as journal:
            grader = SlowGrader(settings, journal)
            grader.scribe = scribe
            rollouts = RolloutRunner(scribe, grader, Prompt("synthesize_again"), 1, Control())
            waiting = iter(list(problems_of(settings)))

            async def work() -> None:
                for one in waiting:
                    await rollouts.answer(one, one.key)
                    assert rollouts.state_of(one).finished

            await asyncio.gather(*(work() for _ in range(rollouts.concurrency)))
        return scribe, grader

    scribe, grader = asyncio.run(run())
    assert len(scribe.kept) == grader.judged == 40
    assert scribe.most == Scribe.at_once
    assert grader.most == 2
    assert grader.beside > 0


def test_failures_are_told_by_status_with_what_was_wrong_most_often(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem(tmp_path / "problems")
    said_by_seed = [PROSE, PROSE, "<answer>\nimport torch\nx = = 3\n</answer>", "<answer>", PROSE]
    with FakeEndpoint(lambda body: said_by_seed[body["seed"]]) as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 5, "--sampling", "seed=0", "--stats") == 0
    report = json.loads(Path("out.stats.json").read_text())
    failures = report["failures"]
    assert {status: failure["rollouts"] for status, failure in failures.items()} == report["statuses"]
    assert failures["FORMAT_ERROR"]["share"] == pytest.approx(0.8)
    most, other = failures["FORMAT_ERROR"]["most_often"].items()
    assert most == ("no answer block (<answer>, BEGIN_PYTHON or a code fence)", 3)
    assert "never closed" in other[0]
    # The number of the line is no difference.
    assert list(failures["PARSE_ERROR"]["most_often"]) == ["invalid syntax (line …)"]
    shown = capsys.readouterr().out
    assert f"4  FORMAT_ERROR (most often: {most[0]})" in shown
    assert "0 of 1 problems" in shown


def test_the_same_answer_twice_is_judged_once(tmp_path: Path) -> None:
    problem(tmp_path / "problems")
    with FakeEndpoint(lambda _: EMPTY) as endpoint:
        assert synthesize(endpoint.base_url, "--rollouts", 5) == 0
    assert manifest()["judged"] == 1
    assert len(rows()) == 5
    assert asked({"messages": rows()[0]["prompt"]}) == rows()[4]["prompt"][-1]["content"]


def test_thoughts_without_an_end_are_no_answer_and_nothing_quotes_them() -> None:
    neither: Any = None  # problem and journal are not looked at
    verdict = Grader(SynthesizeSettings(device="cpu"), neither).known(
        neither, WriterAnswer(content="<think>my secret plan is to\nimport torch, and then(")
    )
    assert verdict is not None
    assert (verdict.status, "never closed" in verdict.error) == ("FORMAT_ERROR", True)
    assert "secret" not in verdict.to_json()
