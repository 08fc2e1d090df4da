"""The base exception of the HTTP library under `huggingface_hub`: requests, httpx or httpx2 by version.

`huggingface_hub` lets some of that library's exceptions through unwrapped. Other installed packages decide
its version.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

_ERRORS = {"requests": "RequestException", "httpx": "HTTPError", "httpx2": "HTTPError"}


@lru_cache(1)
def http_error() -> type[Exception]:
    """The base class of every request failure, with or without a response."""
    from huggingface_hub.errors import HfHubHTTPError

    libraries = [kind.__module__.partition(".")[0] for kind in HfHubHTTPError.__mro__]
    name = next(name for name in libraries if name in _ERRORS)
    found: type[Exception] = getattr(importlib.import_module(name), _ERRORS[name])
    return found
