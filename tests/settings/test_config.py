from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelmill.errors import ConfigError
from kernelmill.settings import config
from kernelmill.settings.config import environment, load, public, redact
from kernelmill.settings.fields import (
    LengthsSettings,
    PublishSettings,
    RateSettings,
    SpecsSettings,
    StripSettings,
    UniqueSettings,
)
from kernelmill.settings.registry import stage_classes


def rate(flags: dict[str, Any] | None = None, file: Path | None = None) -> RateSettings:
    config.environment.cache_clear()
    return load("rate", RateSettings, flags or {}, file)


def test_each_place_wins_over_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[llm]\nconcurrency = 2\n[rate]\nthreshold = 0.1\n")
    assert rate().concurrency == 256
    assert rate(file=file).concurrency == 2
    (tmp_path / ".env").write_text("KERNELMILL_CONCURRENCY=3\n")
    assert rate(file=file).concurrency == 3
    monkeypatch.setenv("KERNELMILL_CONCURRENCY", "4")
    assert rate(file=file).concurrency == 4
    assert rate({"concurrency": "5"}, file).concurrency == 5
    assert rate(file=file).threshold == 0.1


def test_the_table_of_a_stage_wins_over_the_shared_one(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[llm]\nmodel = "a"\n[rate]\nmodel = "b"\n')
    assert rate(file=file).model == "b"
    assert load("specs", SpecsSettings, {}, file).model == "a"


def test_the_variables_of_the_old_pipeline_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASET_PATH", "in.jsonl")
    monkeypatch.setenv("FILTERED_DATASET_PATH", "x/filtered.jsonl")
    monkeypatch.setenv("SYNTHETIC_DATASET_PATH", "x/synthetic.jsonl")
    monkeypatch.setenv("UNIQUE_DATASET_PATH", "x/unique.jsonl")
    monkeypatch.setenv("TEST_MODE", "true")
    settings = rate()
    assert (settings.output, settings.test_mode) == (Path("x/filtered.jsonl"), True)
    assert load("specs", SpecsSettings, {}).output == Path("x/synthetic.jsonl")
    assert load("unique", UniqueSettings, {}).source == "x/filtered.jsonl"
    assert load("unique", UniqueSettings, {}).output == Path("x/unique.jsonl")
    assert load("lengths", LengthsSettings, {}).source == "in.jsonl"


def test_dataset_path_is_what_lengths_reads_and_no_other_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASET_PATH", "siro1/kernelbook-glm4_7-evals-filtered")
    for stage, kind in stage_classes().items():
        said = load(stage, kind, {}).model_dump_json()
        without = kind().model_dump_json()
        assert (said == without) == (stage != "lengths"), stage
    assert rate().source == "siro1/kernelbook-glm4_7-evals"
    assert load("strip", StripSettings, {"source": "raw"}).source == "outputs/evals.jsonl"
    assert load("publish", PublishSettings, {"source": "raw"}).raw_path == "outputs/evals.jsonl"


def test_a_source_says_where_its_name_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load("lengths", LengthsSettings, {}).origin("source") == "the default"
    (tmp_path / ".env").write_text("DATASET_PATH=a.jsonl\n")
    environment.cache_clear()
    assert load("lengths", LengthsSettings, {}).origin("source") == "DATASET_PATH in .env"
    monkeypatch.setenv("DATASET_PATH", "b.jsonl")
    environment.cache_clear()
    assert load("lengths", LengthsSettings, {}).origin("source") == "DATASET_PATH in the environment"
    assert load("lengths", LengthsSettings, {"source": "c.jsonl"}).origin("source") == "given"
    monkeypatch.setenv("UNIQUE_DATASET_PATH", "u.jsonl")
    environment.cache_clear()
    strip = load("strip", StripSettings, {"source": "unique"})
    assert (strip.source, strip.origin("source")) == (
        "u.jsonl",
        "unique, by UNIQUE_DATASET_PATH in the environment",
    )
    file = tmp_path / "c.toml"
    file.write_text('[rate]\nsource = "rows.jsonl"\n')
    assert rate(file=file).origin("source") == str(file)


def test_prices_and_sampling_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[llm.sampling]\ntemperature = 0.5\n[prices."m"]\ninput = 1\noutput = 2\n')
    settings = rate({"sampling": {"seed": "7"}}, file)
    assert settings.sampling.model_dump(exclude_none=True) == {
        "temperature": 0.5,
        "seed": 7,
        "extra_body": {},
    }
    assert settings.prices["m"].output == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rate]\nthreshhold = 1\n", r"unknown key rate.threshhold \(did you mean threshold\?\)"),
        ("[llm]\nthreshold = 1\n", "unknown key llm.threshold"),
        ("[rating]\n", r"unknown key rating \(did you mean rate\?\)"),
        ("threshold = 1\n", "unknown key threshold"),
        ("rate = 1\n", "must be a table"),
        ("[rate\n", "not valid TOML"),
        ('[rate]\nthreshold = "high"\n', "threshold: input should be a valid number"),
        ("[llm.sampling]\ntemprature = 1\n", "unknown key sampling.temprature"),
        ("[llm]\nconcurrency = 0\n", "greater than or equal to 1"),
    ],
)
def test_a_wrong_file_is_told_in_one_line_that_names_it(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        rate(file=file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_an_unknown_variable_of_ours_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMILL_CONCURENCY", "4")
    with pytest.raises(ConfigError, match="did you mean KERNELMILL_CONCURRENCY"):
        rate()


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        rate(file=Path("nowhere.toml"))


def test_saved_settings_hold_no_secret_and_load_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIME_API_KEY", "sk-very-secret-value")
    settings = rate(
        {"base_url": "http://user:hunter2@127.0.0.1:1/v1?k=sk-very-secret-value", "threshold": "0.5"}
    )
    saved = public(settings)
    text = json.dumps(saved)
    assert "sk-very-secret-value" not in text
    assert "hunter2" not in text
    manifest = tmp_path / "m.json"
    manifest.write_text(json.dumps({"stage": "rate", "config": public(rate({"threshold": "0.5"}))}))
    assert rate(file=manifest).threshold == 0.5
    manifest.write_text(json.dumps({"stage": "specs", "config": {}}))
    with pytest.raises(ConfigError, match="not the manifest of a rate run but of specs"):
        rate(file=manifest)


def test_secrets_are_taken_out_of_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijk")
    monkeypatch.setenv("MY_OTHER_API_KEY", "another-secret")
    config.environment.cache_clear()
    assert redact("a hf_abcdefghijk b another-secret c") == "a [HF_TOKEN] b [MY_OTHER_API_KEY] c"


def test_a_switch_that_is_called_a_token_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "false")
    monkeypatch.setenv("SORT_KEY", "1000")
    settings = rate({"threshold": "1000"})
    assert public(settings)["compare"] is False
    assert public(settings)["threshold"] == 1000
    assert redact("false 1000") == "false 1000"


def test_a_dotenv_that_cannot_be_read_is_told_and_does_not_hide_the_message(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"\.env: cannot be read") as caught:
        rate()
    assert redact(str(caught.value))


def test_a_key_that_was_changed_after_its_use_is_hidden_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for key in ("sk-first-value", "sk-second-value"):
        monkeypatch.setenv("PRIME_API_KEY", key)
        config.environment.cache_clear()
        if key.startswith("sk-first"):
            config.secret("PRIME_API_KEY")
    assert redact("sk-first-value sk-second-value") == "[PRIME_API_KEY] [PRIME_API_KEY]"
