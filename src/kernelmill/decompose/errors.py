"""Why one model cannot be decomposed. Each message is one line; a batch goes on with the other models."""

from __future__ import annotations


class BadSource(Exception):
    """The source cannot be used, or the reply of its process is not a decomposed model."""


class CannotRecord(Exception):
    """The model's run cannot be recorded."""
