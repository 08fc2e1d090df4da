"""Cards from facts: true, complete, safe, and the same each time."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zipfile
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

from kernelmill.curate.length_report import LengthReport, Tally, report_of
from kernelmill.errors import ConfigError
from kernelmill.publish.card.card import make_card
from kernelmill.publish.card.facts import CardCounts, CardFacts, ColumnFacts, SplitFacts
from kernelmill.publish.card.tables import models_table
from kernelmill.settings import config
from tests.conftest import ROOT, evals_row

RENDERER = MarkdownIt("commonmark").enable("table")
HOSTILE = [
    "a|b\n| c | d |\n---\n# heading\n```\nfence",
    "</code><script>alert(1)</script><!-- ",
    "[click](javascript:x) ![i](http://evil/x.png) <b>",
    "license: mit\n---\n\u202e\x1b[31m ': \"{[&*!%@`",
    "{{ 7 * 7 }}{% raw %}",
]


def counts_of(*rows: dict[str, Any]) -> CardCounts:
    counts = CardCounts()
    for row in rows:
        counts.add(pa.RecordBatch.from_pylist([row]))
    return counts


def rated(n: int, reward: float = 1.0, **more: Any) -> dict[str, Any]:
    return evals_row(n, reward, difficulty="low", evaluation_raw="", rater="llm:org/model", **more)


def rate_manifest(**more: Any) -> dict[str, Any]:
    return {
        "stage": "rate",
        "version": "0.1.0",
        "finished": "2026-01-02T03:04:05+00:00",
        "output": {"path": "filtered_dataset.jsonl", "rows": 3, "sha256": "aa11"},
        "rows": {"in": 9, "out": 3, "rejected": 6, "reasons": {"reward not above 0.85": 5, "cut": 1}},
        "by": "llm:org/model",
        "source": {"kind": "hub", "repo": "org/evals", "revision": "c0ffee", "splits": ["train"]},
        "prompts": {"rate.md": "beef01"},
        "config": {
            "source": "org/evals",
            "output": "/home/alice/outputs/filtered_dataset.jsonl",
            "base_url": "http://10.1.2.3:8000/v1",
            "model": "org/model",
            "sampling": {"temperature": 0.6, "top_p": None, "extra_body": {"top_k": 4}},
            "journal": "/home/alice/rate.sqlite",
            "threshold": 0.9,
            "prompt": "/home/alice/rate.md",
            "rater": "llm",
            "test_mode": False,
        },
        **more,
    }


def unique_manifest(**more: Any) -> dict[str, Any]:
    return {
        "stage": "unique",
        "version": "0.1.0",
        "output": {"path": "filtered_dataset-filtered.jsonl", "rows": 2, "sha256": "bb22"},
        "rows": {"in": 3, "out": 2, "rejected": 1, "reasons": {"a better or earlier row": 1}},
        "source": {"kind": "file", "path": "/home/alice/outputs/filtered_dataset.jsonl"},
        "config": {"by": "near", "similarity": 0.85, "split": None, "on_bad_row": "stop"},
        **more,
    }


def some_facts(**more: Any) -> CardFacts:
    given: dict[str, Any] = {
        "kind": "unique",
        "name": "evals-unique",
        "repo": "org/evals-unique",
        "splits": (
            SplitFacts("train", 2, ("data/train-00000-of-00001.parquet",)),
            SplitFacts("validation", 1, ("data/validation-00000-of-00001.parquet",)),
        ),
        "columns": (ColumnFacts("reward", "double"), ColumnFacts("mine", "string")),
        "counts": counts_of(rated(1), rated(2, 2.5), rated(3, 4.0)),
        "source": {"kind": "file", "path": "/home/alice/outputs/filtered_dataset-filtered.jsonl", "sha256": "bb22"},
        "lineage": (rate_manifest(), unique_manifest()),
        "split_policy": {"split": "groups", "validation_share": 0.1, "seed": 42, "similarity": 0.85, "groups_from": ["all.jsonl"]},
        "leakage": {
            "modules": 3, "groups": 3, "validation_groups": 1, "validation_rows": 1, "groups_on_both_sides": 0, "close": 0.7,
            "validation_modules": 1, "validation_modules_close_to_train": 1,
            "nearest": [{"validation": "x.jsonl:3 (Net)", "train": "x.jsonl:1 (Block)", "alike": 0.7512}],
        },
        "version": "0.1.0",
    }  # fmt: skip
    return CardFacts(**{**given, **more})


def readme(facts: CardFacts) -> str:
    return make_card(facts)["README.md"].decode()


def metadata(text: str) -> dict[str, Any]:
    data: dict[str, Any] = DatasetCard(text).data.to_dict()
    return data


def outline(text: str) -> list[str]:
    """Headings, and the kinds of everything else: what a value must not change."""
    tokens = RENDERER.parse(DatasetCard(text).text)
    inside = [child for token in tokens for child in token.children or []]
    assert not [token for token in (*tokens, *inside) if token.type.startswith("html")]
    links = {
        str(child.attrs.get("href") or child.attrs.get("src"))
        for child in inside
        if child.type in ("link_open", "image")
    }
    assert links <= {
        "https://github.com/kernelmill/kernelmill",
        *(f"assets/{n}.svg" for n in ("rewards", "difficulty", "lengths")),
    }
    return [token.type + (f" {token.tag}" if token.type == "heading_open" else "") for token in tokens]


def section(text: str, title: str) -> str:
    return re.split(r"^#{2,3} ", text.partition(f"# {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_metadata_is_what_the_hub_documents() -> None:
    data = metadata(readme(some_facts(license="mit")))
    assert data["license"] == "mit"
    assert data["pretty_name"] == "evals-unique"
    assert data["language"] == ["code"]
    assert data["task_categories"] == ["text-generation"]
    assert data["size_categories"] == ["n<1K"]
    assert data["source_datasets"] == ["org/evals"]
    assert data["configs"] == [
        {
            "config_name": "default",
            "data_files": [
                {"split": "train", "path": "data/train-00000-of-00001.parquet"},
                {"split": "validation", "path": "data/validation-00000-of-00001.parquet"},
            ],
        }
    ]
    assert metadata(readme(some_facts()))["license"] == "unknown"


@pytest.mark.parametrize(
    ("rows", "size"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (18162, "10K<n<100K"), (2_000_000, "1M<n<10M")],
)
def test_the_size_category_is_the_one_of_all_rows(rows: int, size: str) -> None:
    facts = some_facts(splits=(SplitFacts("train", rows, ("data/train-*.parquet",)),))
    assert metadata(readme(facts))["size_categories"] == [size]


def test_the_card_tells_how_the_rows_were_made() -> None:
    text = readme(some_facts())
    assert 'load_dataset("org/evals-unique")  # train and validation' in text
    assert "`org/evals` on the Hugging Face Hub at revision `c0ffee` (splits: `train`)" in text
    assert "| `kernelmill rate` | 9 | 3 | 6 | reward not above 0.85 (5); cut (1) |" in text
    assert "| `kernelmill unique` | 3 | 2 | 1 | a better or earlier row (1) |" in text
    assert "`rate` kept the rows with a reward above 0.9." in text
    models = section(text, "Models and prompts")
    assert "`org/model`" in models
    assert "`rate.md` (`beef01`)" in models
    assert "`temperature=0.6`" in models
    assert "Rated by a model (`org/model`)" in section(text, "Difficulty")
    assert "From 1 to 4:" in section(text, "Reward")
    assert "`mine` | `string` |  |" in section(text, "Columns")
    assert "was not run" in section(text, "Benchmarks")
    splits = section(text, "Splits")
    assert "the seed 42, with a chance of 10% for validation" in splits
    assert "The groups are those of `all.jsonl`" in splits
    assert "| groups on both sides | 0 |" in splits
    assert "have 70% or more of its code in common with a train module, each with the nearest:" in splits
    assert "| `x.jsonl:3 (Net)` | `x.jsonl:1 (Block)` | 75% |" in splits


def test_what_was_found_of_benchmarks_is_told() -> None:
    found = {
        "source": {"kind": "hub", "repo": "ScalingIntelligence/KernelBench", "revision": "f00d"}, "problems": 270, "sha256": "dd44",
        "rows": {"same_code": 1, "n_grams": 2}, "problems_hit": 3,
    }  # fmt: skip
    manifest: dict[str, Any] = {
        "stage": "decontaminate", "version": "0.1.0", "output": {"path": "clean.jsonl"}, "rows": {"in": 3, "out": 3, "rejected": 0},
        "source": {"kind": "file", "path": "filtered_dataset.jsonl"}, "benchmarks": {"kernelbench": found},
        "config": {"against": ["/home/alice/kb"], "drop": False, "share": 0.55},
    }  # fmt: skip
    text = readme(some_facts(lineage=(rate_manifest(), manifest)))
    line = "| `kernelbench` | `ScalingIntelligence/KernelBench@f00d` | `dd44` | 270 | 1 | 2 | 3 |"
    assert line in section(text, "Benchmarks")
    assert "are marked in the columns" in section(text, "Benchmarks")
    assert "Rows that hold a benchmark's problem were marked, not dropped" in section(text, "Known limits")
    assert "--against kernelbench=ScalingIntelligence/KernelBench@f00d --share 0.55\n" in section(
        text, "Rebuild it"
    )
    manifest["config"]["drop"] = True
    text = readme(some_facts(lineage=(rate_manifest(), manifest)))
    assert "Rows that hold a problem were dropped." in section(text, "Benchmarks")
    assert "benchmark's problem" not in section(text, "Known limits")


def lengths_report(rows: int, **tokenizer: Any) -> LengthReport:
    about = {"name": "Qwen/Qwen3", "kind": "hub", "revision": "abc1", "template_sha256": "ee55", **tokenizer}
    tokens = array("I", [600] * (rows - 1) + [5000])
    return report_of(
        tokens, tokens, Tally(with_thoughts=2, thoughts_left_out=1), [], "/home/alice/x.jsonl", about, "count"
    )


def test_lengths_are_in_tokens_where_they_were_counted() -> None:
    files = make_card(some_facts(lengths=lengths_report(3)))
    lengths = section(files["README.md"].decode(), "Lengths")
    assert (
        "the chat template of `Qwen/Qwen3` (revision `abc1` and template sha256 `ee55`). 6,200 tokens in all."
        in lengths
    )
    assert "In 1 of them the template leaves the thoughts out" in lengths
    assert "| tokens | 600 | 5,000 | 5,000 | 5,000 | 5,000 | 5,000 | 5,000 | 5,000 |" in lengths
    assert "| 100% | 5,120 | 0 | 0 |" in lengths
    assert "characters" not in lengths
    assert "Rows by tokens" in files["assets/lengths.svg"].decode()
    local = readme(
        some_facts(lengths=lengths_report(3, name="/home/alice/qwen", kind="folder", revision=None))
    )
    assert "the chat template of `qwen` (" in section(local, "Lengths")
    assert "alice" not in local


def test_a_report_of_lengths_of_other_rows_is_refused() -> None:
    with pytest.raises(ConfigError, match="is of 4 rows, but 3 are published: make it again"):
        make_card(some_facts(lengths=lengths_report(4)))


def test_the_old_split_is_called_by_its_name() -> None:
    text = readme(some_facts(split_policy={"split": "rows", "validation_share": 0.1, "seed": 42}, leakage={}))
    assert "By row: 10% of the rows" in section(text, "Splits")
    assert "Validation has modules that train has too" in section(text, "Known limits")
    assert "--split-by rows" in section(text, "Rebuild it")


def test_the_commands_rebuild_it_without_what_is_of_one_machine_alone() -> None:
    facts = some_facts()
    text = readme(facts)
    assert section(text, "Rebuild it").startswith(
        "\n```bash\n"
        '# in a config file: [rate] sampling.extra_body = {"top_k":4}\n'
        "kernelmill rate org/evals@c0ffee -o filtered_dataset.jsonl --base-url URL --model org/model"
        " --sampling temperature=0.6 --threshold 0.9 --prompt rate.md\n"
        "kernelmill unique filtered_dataset.jsonl -o filtered_dataset-filtered.jsonl\n"
        "kernelmill publish filtered_dataset-filtered.jsonl --split-by groups --to folder:evals-unique\n```\n"
    )
    for private in ("alice", "/home", "10.1.2.3", "rate.sqlite", "2026-01-02"):
        assert private not in text


def test_the_commands_of_a_published_card_make_the_same_dataset_again(
    tmp_path: Path, mill: Callable[..., Any]
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    again.mkdir()
    rows = [first / f"{name}.jsonl" for name in ("filtered_dataset", "unique", "unique-no-reasoning")]
    for line in (
        ("rate", "bundled:samples/evals.jsonl", "-o", rows[0], "--rater", "static", "--no-trace", "--threshold", 1.5),
        ("unique", rows[0], "-o", rows[1], "--by", "structure"),
        ("strip", rows[1], "--style", "fence"),
        ("publish", rows[2], "--to", f"folder:{first / 'dataset'}", "--seed", 7, "--validation", 0.3, "--license", "mit"),
    ):  # fmt: skip
        done = mill(*line)
        assert done.returncode == 0, done.stderr
    text = (first / "dataset/README.md").read_text()
    for line in re.findall(r"^kernelmill (.*)$", section(text, "Rebuild it"), re.MULTILINE):
        done = mill(*shlex.split(line), cwd=again)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    made = {
        folder: {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted((folder / "dataset").rglob("*"))
            if path.is_file() and path.name != "kernelmill.json"  # which has the times of the stages in it
        }
        for folder in (first, again)
    }
    assert made[first] == made[again]
    assert {name.split("/")[1] for name in made[first]} == {"README.md", "assets", "data"}
    assert metadata(text)["license"] == "mit"
    assert str(tmp_path) not in text
    splits = re.findall(r"^\| `(train|validation)` \| (\d+) \|", text, re.MULTILINE)
    assert {name: int(number) for name, number in splits} == {
        name: sum(pq.read_metadata(file).num_rows for file in (first / "dataset/data").glob(f"{name}-*"))
        for name in ("train", "validation")
    }


def test_the_same_facts_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "import hashlib, pickle\nfrom tests.publish.test_card import make_card, some_facts\n"
        "print(hashlib.sha256(pickle.dumps(make_card(some_facts()))).hexdigest())"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(hashes) == 1


@pytest.mark.parametrize("how", ["groups", "source", "rows"])
@pytest.mark.parametrize("evil", HOSTILE)
def test_no_value_breaks_the_metadata_or_the_document(evil: str, how: str) -> None:
    def facts(word: str) -> CardFacts:
        counts = counts_of(
            *(rated(n) for n in range(3)),
            {
                **rated(4),
                "difficulty": word,
                "rater": word,
                "licenses": [word],
                "task": word,
                "module_name": word,
            },
            {**rated(5), "verdict": {"env": {"evaluator": word, "gpu": word}}},
        )
        rate = rate_manifest(
            by=f"llm:{word}", prompts={word: word}, version=word, source={"kind": "hub", "repo": word, "revision": word},
        )  # fmt: skip
        rate["rows"]["reasons"] = {word: 6}
        rate["config"] |= {
            "model": word,
            "threshold": word,
            "prompt": word,
            "base_url": f"https://x.org/{word}",
        }
        unique = unique_manifest(source={"kind": "file", "path": word}, output={"path": word, "sha256": word})
        unique["config"] |= {"by": word}
        found = {"source": {"kind": "folder", "path": word}, "sha256": word, "problems": word}
        clean = {"stage": "decontaminate", "benchmarks": {word: found}, "config": {"share": word}}
        other = {"stage": word, "rows": {"in": word}, "config": {word: word}}
        return some_facts(
            name=word, repo=word, license=word, version=word, counts=counts, lineage=(rate, unique, clean, other),
            columns=(ColumnFacts(word, word),), lengths=lengths_report(5, name=word, revision=word), split_policy={"split": how, "of": word, "seed": word, "similarity": word, "validation_share": word, "groups_from": [word]},
            leakage={"groups_on_both_sides": word, "close": word, "nearest": [{"validation": word, "train": word, "alike": word}]},
        )  # fmt: skip

    text, plain = readme(facts(evil)), readme(facts("word"))
    assert Counter(outline(text)) == Counter(outline(plain))
    assert set(metadata(text)) == set(metadata(plain))
    assert metadata(text)["configs"] == metadata(plain)["configs"]
    for name, content in make_card(facts(evil)).items():
        if name.endswith(".svg"):
            assert "script" not in {element.tag for element in ElementTree.fromstring(content).iter()}


def test_secrets_do_not_reach_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    config.environment.cache_clear()
    manifest = rate_manifest()
    manifest["rows"]["reasons"] = {"refused hf_verysecret": 6}
    manifest["config"] |= {"base_url": "https://user:pw@api.example.com/v1?key=abc", "model": "hf_verysecret"}
    text = readme(some_facts(lineage=(manifest,), name="hf_verysecret"))
    assert not [word for word in ("verysecret", "user:pw", "key=abc") if word in text]
    assert "https://api.example.com/v1" in text


def test_every_plot_is_well_formed_and_shown_and_has_the_tables_numbers() -> None:
    files = make_card(some_facts())
    text = files["README.md"].decode()
    plots = {name for name in files if name.endswith(".svg")}
    assert plots == {f"assets/{name}.svg" for name in ("rewards", "difficulty", "lengths")}
    assert set(re.findall(r"!\[\w+\]\((.*?)\)", text)) == plots
    for name in plots:
        assert ElementTree.fromstring(files[name]).tag == "{http://www.w3.org/2000/svg}svg"
    assert "| 0.85 to 1 | 1 | 33.3% |" in text
    assert "0.85 to 1" in files["assets/rewards.svg"].decode()


def test_with_nothing_known_the_card_says_so_and_invents_nothing() -> None:
    facts = some_facts(
        kind="other", repo=None, name="rows", columns=(), counts=counts_of({"a": 1}), lineage=(), source={},
        splits=(SplitFacts("train", 1, ("data/train-*.parquet",)),), split_policy=None, leakage=None,
    )  # fmt: skip
    files = make_card(facts)
    assert list(files) == ["README.md"]
    text = files["README.md"].decode()
    assert "a source that is not recorded" in text
    assert "how they were made is not recorded" in text
    assert "All rows are in one split, `train`." in text
    assert "Not measured" in section(text, "Lengths")
    assert section(text, "Rebuild it").startswith(
        "\n```bash\nkernelmill publish SOURCE --to folder:rows\n```\n"
    )
    assert "source_datasets" not in metadata(text)
    for absent in ("## Reward", "## Difficulty", "None", "nan", "{}", "Hugging Face Hub"):
        assert absent not in text


WITHOUT: dict[str, dict[str, Any]] = {
    "lineage": {"lineage": ()},
    "columns": {"columns": ()},
    "empty manifests": {"lineage": ({"stage": "rate"}, {"stage": "unique", "config": None, "rows": None, "source": None})},
    "rewards": {"counts": counts_of({"completion": [{"content": "x"}]})},
    "rows": {"counts": CardCounts(), "splits": (SplitFacts("train", 0, ()),)},
    "difficulty": {"counts": counts_of(evals_row(1))},
    "synthetic": {"kind": "synthetic", "counts": counts_of({"prompt": "do", "module_name": "Net", "writer": "static"})},
    "raw": {"kind": "raw", "lineage": ()},
    "no reasoning": {"no_reasoning": True},
    "a folder": {"repo": None},
}  # fmt: skip


@pytest.mark.parametrize("missing", WITHOUT)
def test_a_card_with_facts_missing_is_whole(missing: str) -> None:
    text = readme(some_facts(**WITHOUT[missing]))
    assert metadata(text)["configs"]
    tokens = outline(text)
    assert tokens.count("heading_open h1") == 1
    titles = re.findall(r"^##+ (.*)\n\n(?=\S)(?!#)", text, re.MULTILINE)
    assert titles == re.findall(r"^##+ (.*)$", text, re.MULTILINE), "a section without a word in it"
    assert not re.search(r"\n\n\n|None|Undefined|nan\b", text.replace("None of these stages", ""))


def test_datasets_loads_a_folder_with_its_card(tmp_path: Path) -> None:
    folder = tmp_path / "evals-unique"
    (folder / "data").mkdir(parents=True)
    for split, rows in (("train", 2), ("validation", 1)):
        table = pa.Table.from_pylist([evals_row(n) for n in range(rows)])
        pq.write_table(table, folder / f"data/{split}-00000-of-00001.parquet")
    for name, content in make_card(some_facts(repo=None)).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    snippet = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[0].replace(
        "path/to/", ""
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{snippet}\nprint(dict(dataset.num_rows), len(train), len(validation))"],
        cwd=tmp_path, env={**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.stdout.strip() == "{'train': 2, 'validation': 1} 2 1", done.stderr


def test_thoughts_that_strip_kept_are_not_said_to_be_gone() -> None:
    def card(style: str) -> str:
        return readme(
            some_facts(no_reasoning=True, lineage=({"stage": "strip", "config": {"style": style}},))
        )

    assert "the thoughts are taken out." in card("answer")
    assert "the thoughts stand in a field of their own, `reasoning_content`." in card("reasoning_content")


def test_the_template_ships_with_the_package(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=240)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "kernelmill/publish/card/card.md.jinja" in archive.namelist()


def test_a_licence_is_written_as_the_hub_writes_it() -> None:
    text = readme(some_facts(license="Apache-2.0"))
    assert metadata(text)["license"] == "apache-2.0"
    assert "The publisher declares `Apache-2.0`" in section(text, "Licences")


@pytest.mark.parametrize(
    ("raters", "words"),
    [
        (["static"], "Rated by program analysis (`static`), from the module alone"),
        (
            ["static", "llm:a/b"],
            "Rated by a model (`a/b`) and program analysis (`static`), from the module alone",
        ),
        (["three people"], "Rated by `three people`.\n"),
        ([None], "Who rated the difficulty is not recorded in the rows."),
    ],
)
def test_who_rated_is_told_as_far_as_it_is_known(raters: list[str | None], words: str) -> None:
    counts = counts_of(*(evals_row(n, difficulty="low", rater=rater) for n, rater in enumerate(raters)))
    assert words in section(readme(some_facts(counts=counts)), "Difficulty")


def test_tasks_and_writers_of_the_rows_are_told() -> None:
    rows = [
        {"prompt": "do", "task": f"task {min(n, 6)}", "writer": "static" if n else "llm:a/b"}
        for n in range(9)
    ]
    text = readme(some_facts(kind="synthetic", counts=counts_of(*rows)))
    assert (
        "rows by task: `task 6` (3), `task 0` (1), `task 1` (1), `task 2` (1), `task 3` (1), 2 others."
        in text
    )
    written = "The specifications were written by a model (`a/b`) and program analysis (`static`)."
    assert written in section(text, "Models and prompts")
    assert "wrote the answers is not recorded" in section(readme(some_facts()), "Models and prompts")
    answered = readme(some_facts(counts=counts_of(evals_row(1, writer="inductor of torch 2.13"))))
    assert "The answers were written by `inductor of torch 2.13`." in section(answered, "Models and prompts")


def test_a_stage_that_the_compiler_answered_is_not_called_program_analysis() -> None:
    made = {"stage": "synthesize", "by": "inductor of torch 2.13", "config": {}}
    shown = models_table([made, {"stage": "rate", "by": "static"}, {"stage": "rate", "by": "llm:a/b"}])
    assert shown is not None
    cells = [line.split(" | ")[1] for line in shown.splitlines()[2:]]
    assert cells == ["`inductor of torch 2.13`, no model", "program analysis, no model", "`a/b`"]


def test_licences_of_the_rows_are_listed_and_those_without_one_counted() -> None:
    counts = counts_of(
        evals_row(1, licenses=["MIT", "BSD"]), evals_row(2, licenses=["MIT"]), evals_row(3, licenses=[])
    )
    licences = section(readme(some_facts(counts=counts)), "Licences")
    assert "| `MIT` | 2 | 66.7% |\n| `BSD` | 1 | 33.3% |" in licences
    assert "Rows that carry none: 1." in licences
