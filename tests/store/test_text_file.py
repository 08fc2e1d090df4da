"""A file that is written at once is there whole, or as it was; nothing else is left beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmill.base import whole_file
from kernelmill.base.whole_file import write_whole
from kernelmill.errors import OutputError


@pytest.mark.parametrize(
    ("stopped_by", "seen"), [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "full"), OutputError)]
)
def test_what_stops_it_leaves_the_old_file_and_no_half(
    stopped_by: BaseException,
    seen: type[BaseException],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_whole(tmp_path / "a.json", b"old")

    def stop(_: int) -> None:
        raise stopped_by

    monkeypatch.setattr(whole_file.os, "fsync", stop)
    with pytest.raises(seen):
        write_whole(tmp_path / "a.json", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.json": b"old"}
