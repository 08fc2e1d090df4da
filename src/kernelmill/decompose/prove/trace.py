"""Trace one run of one side of a claim, on fake tensors where possible.

This executes untrusted code: use it only in a sandboxed process.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from kernelmill.decompose.prove.build import (
    Original,
    Refactored,
    build_for_numbers,
    bytes_in_blocks,
    held_tensors,
    reraise_if_out_of_memory,
)
from kernelmill.decompose.prove.op_recorder import ClaimOpRecorder, WholeSequences
from kernelmill.decompose.prove.sizes import Cost, Rule, elements_of, enlarged, narrowed
from kernelmill.decompose.prove.values import form
from kernelmill.decompose.record.caches import clear_caches
from kernelmill.decompose.record.fake import Fakes


class Run:
    """One recorded run of one side."""

    def __init__(self, model: nn.Module, inputs: Any, output: Any, recorder: ClaimOpRecorder) -> None:
        self.model, self.inputs, self.output, self.recorder = model, inputs, output, recorder
        self.form = form(output)
        self._held = list({id(t): t for t in held_tensors(model).values()}.values())

    def cost(self) -> Cost:
        elements = elements_of(self.inputs) + elements_of(self.output) + 2 * self.recorder.largest
        weights = sum(t.numel() * t.element_size() for t in self._held)
        return Cost(
            elements, self.recorder.flops, self.recorder.written, weights, bytes_in_blocks(self._held)
        )


def traced(
    side: Original | Refactored,
    original: Original,
    fake: bool,
    train: bool,
    rules: list[Rule] | None = None,
    real_weights: bool = False,
    grown: Rule | None = None,
    most: int | None = None,
) -> Run:
    """Build a side, run it and record the run.

    `rules` reduce inputs. `grown` enlarges one dimension of them, which requires `fake`. Raises `TooMany`
    after `most` operations.
    """
    clear_caches()
    torch.manual_seed(0)
    random.seed(0)
    model = build_for_numbers(side) if real_weights else None
    with ExitStack() as stack:
        fakes = stack.enter_context(Fakes()) if fake else None
        torch.manual_seed(0)  # both sides get the same inputs, whatever building the model drew
        args, kwargs = enlarged(narrowed(original.inputs(), rules or []), grown)
        if model is None:
            model = side.build()
        model.train(train)
        children = {m: name for name, m in model.named_children()} if isinstance(side, Refactored) else {}
        recorder = ClaimOpRecorder(children, held_tensors(model), most)
        stack.enter_context(recorder)
        stack.enter_context(WholeSequences(recorder, fake))
        stack.enter_context(recorder.following())
        if fakes is not None:
            stack.enter_context(fakes.track_constants())
        return Run(model, (args, kwargs), model(*args, **kwargs), recorder)


def first_trace(original: Original) -> tuple[tuple[bool, bool], Run]:
    """Trace the original in the first mode that works, and return that mode.

    The modes are fake tensors; fake inputs with real weights, for a module that reads values; and real
    tensors.
    """
    trouble: Exception | None = None
    for fake, real_weights in ((True, False), (True, True), (False, True)):
        try:
            return (fake, real_weights), traced(original, original, fake, False, [], real_weights)
        except Exception as error:  # noqa: BLE001  the last mode shows whether the error is the module's own
            reraise_if_out_of_memory(error)
            trouble = error
    assert trouble is not None
    raise trouble
