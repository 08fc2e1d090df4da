"""Rows in, rows out: one reader for every kind of source, one writer for every output."""

from kernelmill.store.output import Output
from kernelmill.store.source import Source, open_source

__all__ = ["Output", "Source", "open_source"]
