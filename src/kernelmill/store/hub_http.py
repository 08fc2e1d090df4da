"""The HTTP library under `huggingface_hub`, which is another one in each of its generations: requests, httpx, httpx2.

Failures that it does not wrap come through as that library's own. Its release is chosen by whatever else is installed.
"""

from __future__ import annotations

import importlib
from functools import lru_cache

_ERRORS = {"requests": "RequestException", "httpx": "HTTPError", "httpx2": "HTTPError"}


@lru_cache(1)
def http_error() -> type[Exception]:
    """What every failure of a request is an instance of, with an answer or without one."""
    from huggingface_hub.errors import HfHubHTTPError

    libraries = [kind.__module__.partition(".")[0] for kind in HfHubHTTPError.__mro__]
    name = next(name for name in libraries if name in _ERRORS)
    found: type[Exception] = getattr(importlib.import_module(name), _ERRORS[name])
    return found
