"""A Hub on the loopback, and the command line with that Hub in place of the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernelmill.testing.fake_hub import FakeHub

Mill = Callable[..., Any]


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as running:
        yield running


@pytest.fixture
def mill_at_hub(hub: FakeHub, mill: Mill, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mill]:
    """`kernelmill …` without a process, its clients at the loopback Hub."""
    from huggingface_hub import close_session, constants

    variables = hub.environment()
    # The client reads these when it is imported, which is once for all tests.
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    )
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.setattr(constants, name, variables[name])
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)

    def run(*arguments: object) -> Any:
        done = mill(*arguments, env=variables)
        assert hub.token not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    close_session()
    yield run
    close_session()
