"""Asking a model many things, and never losing an answer: client, limiter, journal, engine."""
