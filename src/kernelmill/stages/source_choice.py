"""Which source a stage reads, and why: said before it is read, so that nobody pays for the wrong rows.

In test mode a stage goes on from what the test runs of the stages before it wrote (`x.test.jsonl` for `x.jsonl`), so that
the commands of a pipeline can be tried one after the other. Does not open sources: `store` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from kernelmill.settings.config import GIVEN, redact, secret
from kernelmill.settings.fields import PublishSettings, Settings, StripSettings
from kernelmill.store.output import test_path

S = TypeVar("S", bound=Settings)


def test_mode_source(path: str, *, named: bool) -> str | None:
    """The file that a test run wrote in place of this one, where it is what is meant: the user did not name the file
    (`named`), or the file is not there."""
    if not path.endswith(".jsonl") or path.endswith(".test.jsonl"):
        return None
    file = Path(path).expanduser()
    other = test_path(file)
    return str(other) if other.is_file() and not (named and file.exists()) else None


def with_resolved_source(settings: Settings) -> Settings:
    """The settings with the source that they come to here: on the Hub or local, of a test run or a real one."""
    found = with_test_mode_source(settings)
    return (
        _hub_or_local(found)
        if isinstance(found, StripSettings) and found.hub and found.dataset_name
        else found
    )


def _hub_or_local(settings: StripSettings) -> StripSettings:
    """Where `strip --hub` reads a named dataset: on the Hub; locally where nothing could be uploaded, or a test run left it."""
    if secret("HF_TOKEN") is None:
        settings.note("source", f"{settings.origin('source')}; HF_TOKEN is not set, so nothing is uploaded")
        return settings
    if settings.test_mode and settings.source.endswith(".test.jsonl"):
        return settings
    hub = settings.from_hub()
    hub.note("source", f"{settings.dataset_name} on the Hub; the result is published as {hub.hub_target}")
    return hub


def with_test_mode_source(settings: S) -> S:
    """The settings, reading what the test run of the stage before wrote if this is a test run too."""
    if not getattr(settings, "test_mode", False) or isinstance(settings, PublishSettings):
        return settings
    why = settings.origin("source")
    other = test_mode_source(getattr(settings, "source", ""), named=why == GIVEN)
    if other is None:
        return settings
    changed = settings.model_copy(update={"source": other})
    changed.note("source", f"{why}; in test mode, what its test run wrote")
    return changed


def source_lines(settings: Settings) -> list[str]:
    """What a stage says of its sources before it opens them."""
    return [source_line(spec, why) for spec, why in settings.sources()]


def source_line(spec: str, why: str) -> str:
    return redact(f"{'source':<12}{spec} ({why})")
