"""What is known of a reference before any candidate is judged by it."""

from __future__ import annotations

from dataclasses import dataclass

FAR = 0.1
"""Relative distance above which the float64 run does not count as the same function as the eager run."""


@dataclass
class Facts:
    """How the reference behaves on its own inputs, as built and in eval mode."""

    random: bool
    random_in_eval: bool
    mode_matters: bool
    """train() and eval() give different outputs, or train() fails.

    False for a reference that is random as built: its outputs cannot be compared.
    """
    mutates_inputs: bool
    aliases_inputs: bool
    """An output shares memory with an input."""
    oracle_note: str
    distance: float
    """Relative distance between eager and float64. Above `FAR` the result is mostly rounding."""
    noise: bool = False
    """The result is nothing but rounding: inputs that differ by one rounding give quite another one."""

    @property
    def no_answer(self) -> str:
        """Why there is no right answer to compare with; empty if there is one."""
        if self.random_in_eval:
            return "the reference is random: there is no right answer to compare with"
        if self.noise:
            return "the reference's output is rounding errors only: there is no right answer to compare with"
        return ""
