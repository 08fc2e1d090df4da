"""Choose the source that a stage reads, and report it first, so that nobody pays for the wrong rows.

In test mode a stage reads what the test runs of earlier stages wrote (`x.test.jsonl` for `x.jsonl`), so
that the commands of a pipeline can be tried one after the other. Does not open sources: `store` does.
"""

from __future__ import annotations

from pathlib import Path

from kernelmill.settings.base import Settings
from kernelmill.settings.config import GIVEN, redact, secret
from kernelmill.settings.fields import PublishSettings, StripSettings
from kernelmill.store.output import test_path


def test_mode_source(path: str, *, named: bool) -> str | None:
    """The file that a test run wrote instead of this one; None if there is none.

    A file that exists and that the user gave explicitly (`named`) is never replaced.
    """
    if not path.endswith(".jsonl") or path.endswith(".test.jsonl"):
        return None
    file = Path(path).expanduser()
    other = test_path(file)
    return str(other) if other.is_file() and not (named and file.exists()) else None


def with_resolved_source(settings: Settings) -> Settings:
    """The settings with the source to read: on the Hub or local, of a test run or a real one."""
    found = with_test_mode_source(settings)
    return (
        _hub_or_local(found)
        if isinstance(found, StripSettings) and found.hub and found.dataset_name
        else found
    )


def _hub_or_local(settings: StripSettings) -> StripSettings:
    """`strip --hub` reads a named dataset on the Hub; the local file without a token or after a test run."""
    if secret("HF_TOKEN") is None:
        settings.note("source", f"{settings.origin('source')}; HF_TOKEN is not set, so nothing is uploaded")
        return settings
    if settings.test_mode and settings.source.endswith(".test.jsonl"):
        return settings
    hub = settings.from_hub()
    hub.note("source", f"{settings.dataset_name} on the Hub; the result is published as {hub.hub_target}")
    return hub


def with_test_mode_source(settings: Settings) -> Settings:
    """In test mode, the settings with the output of the earlier stage's test run as source."""
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
    """The lines about its sources that a stage prints before it opens them."""
    return [source_line(spec, why) for spec, why in settings.sources()]


def source_line(spec: str, why: str) -> str:
    return redact(f"{'source':<12}{spec} ({why})")
