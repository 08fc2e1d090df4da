"""Prompt templates: files in `prompts/`, or the user's own, rendered with Jinja.

The rendered text is sent as it is and never truncated. An undefined variable is an error, not an empty
string. The hash of the template is recorded with the output. The rendered text is part of every call's key.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import jinja2

from kernelmill.base.resources import bundled
from kernelmill.errors import ConfigError

_environment = jinja2.Environment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=False, autoescape=False
)


class Prompt:
    """A prompt template: the bundled one called `name`, or the user's file `path` instead."""

    def __init__(self, name: str, path: Path | None = None) -> None:
        file = path or bundled(f"prompts/{name}.md")
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read ({error.strerror})") from None
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file}: not UTF-8 text ({error.reason} at byte {error.start})") from None
        try:
            self._template = _environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"{file}:{error.lineno}: not a Jinja template ({error.message})") from None
        except Exception as error:  # noqa: BLE001  Jinja evaluates constants here; see render
            raise _fault(file, error) from None
        self.file = file
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()

    def render(self, **values: str) -> str:
        try:
            return self._template.render(values)
        except jinja2.UndefinedError as error:
            known = ", ".join(values)
            raise ConfigError(f"{self.file}: {error.message} (a template can use: {known})") from None
        except Exception as error:  # noqa: BLE001  a template is user code: any error is the template's
            raise _fault(self.file, error) from None


def _fault(file: Path, error: Exception) -> ConfigError:
    text = " ".join(str(error).split())
    return ConfigError(f"{file}: the template fails ({type(error).__name__}{f': {text}' if text else ''})")
