"""How kernelmill fails.

Three kinds of failure, and one way to treat each:

1. *The user can fix it* (a wrong path, a missing key, a bad config value, a full disk). Raise a
   `MillError`. The command line prints it as one line that says what is wrong and what to do next,
   without a traceback, and exits with the class's `exit_code`.
2. *One row is bad* (a torn line, an answer that does not parse). That is data, not a crash: the row goes
   to the rejected file with its reason. `BadRow` carries where it stands and what was expected; it stops
   the command unless the user said `--on-bad-row reject`.
3. *We have a bug.* Every other exception propagates with its traceback. Nothing catches `Exception` to
   carry on.

    MillError
    ├── ConfigError        a flag, an environment variable or a config key is wrong
    ├── SourceError        the input cannot be opened, or is not what it says it is
    │   ├── NotOnHub       the Hub has no dataset of that name that we may see
    │   └── BadRow         one row of it is bad: file, line, field, what was expected
    ├── OutputError        the output cannot be written, or another process is writing it
    ├── EndpointError      the model endpoint refused in a way that a retry will not fix
    └── Stopped            the run ended early and can be resumed: the budget, the circuit breaker
        └── Interrupted    … by Ctrl-C or a signal
"""

from __future__ import annotations

import codecs
import errno

_DISK = {
    errno.ENOSPC: ("no space left on the disk", "make room and run the same command again"),
    errno.EDQUOT: ("the disk quota is used up", "make room and run the same command again"),
    errno.EFBIG: (
        "the file grows over a limit",
        "raise the limit (ulimit -f) and run the same command again",
    ),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter one"),
    errno.EROFS: ("read-only disk", "write to another place"),
}


def disk_fault(error: BaseException | None, kept: str = "") -> str | None:
    """The message for a disk that cannot be written, with what is `kept` nevertheless; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    what, advice = _DISK[error.errno]
    return f"{what} ({error.filename or 'while writing'}): {f'{kept}; ' if kept else ''}{advice}"


class MillError(Exception):
    """A failure that the user can fix. `str()` of it is one line."""

    exit_code = 1


class ConfigError(MillError):
    exit_code = 2


class SourceError(MillError):
    pass


class NotOnHub(SourceError):
    pass


class BadRow(SourceError):
    """One row of the input is bad. `where` is `file:line`, `field` a path such as `$.reward`."""

    def __init__(self, where: str, problem: str, field: str | None = None) -> None:
        self.where = where
        self.field = field
        self.problem = problem
        super().__init__(f"{where}: {f'field {field}: ' if field else ''}{problem}")

    def __reduce__(self) -> tuple[type[BadRow], tuple[str, str, str | None]]:
        # It may have happened in a worker process.
        return BadRow, (self.where, self.problem, self.field)

    @classmethod
    def not_json(cls, where: str, error: Exception, raw: bytes = b"") -> BadRow:
        """A line that is no JSON object; `raw` is what was decoded."""
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in raw[:2]:
            return cls(where, "not UTF-8; it looks like UTF-16: save the file as UTF-8")
        if isinstance(error, UnicodeDecodeError):
            return cls(where, f"not UTF-8 ({error.reason})")
        return cls(where, f"not a JSON object on one line ({error})")

    @property
    def reason(self) -> str:
        """The reason for a rejected file: without the place, which has a column of its own there."""
        return f"{f'field {self.field}: ' if self.field else ''}{self.problem}"


_JSON_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


def json_kind(value: object) -> str:
    """The type of a decoded JSON value in words, for the message of a `BadRow`: `an object`, `a number`."""
    return _JSON_KINDS.get(type(value), "a number")


class OutputError(MillError):
    pass


class EndpointError(MillError):
    pass


class Stopped(MillError):
    """The run ended before all rows were answered. Everything paid for is in the journal."""

    exit_code = 3


class Interrupted(Stopped):
    exit_code = 130
